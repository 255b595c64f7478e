"""What Ray must not do to the programs that join it."""

from __future__ import annotations

import logging
import socket

import pytest
import ray

from rocketray.actors import ray_runtime
from rocketray.errors import NodeNotRunningError


def test_what_ray_reports_goes_to_the_log_and_not_to_stdout(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    worker = ray._private.worker
    monkeypatch.setattr(worker, "print_to_stdstream", worker.print_to_stdstream)
    report = {"lines": ["A worker died"], "pid": "raylet", "is_err": False}
    worker.print_to_stdstream(report, ignore_prefix=False)
    assert "A worker died" in capsys.readouterr().out, "Ray's way: who prints JSON is disturbed"
    ray_runtime._log_reports()
    with caplog.at_level(logging.INFO):
        worker.print_to_stdstream(report, ignore_prefix=False)
    assert capsys.readouterr().out == ""
    assert "A worker died" in caplog.text


def test_a_ray_that_nobody_listens_for_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(NodeNotRunningError, match=f"the Ray at {address} does not answer"):
        ray_runtime.join_ray(address)
