"""What Ray must not do to the programs that join it."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
import ray
from support.harness.patience import patience

from rocketray.errors import ConfigError, NodeNotRunningError
from rocketray.runtime.ray_process import ray_runtime

REPORTS = """
import logging
from ray._private import worker
from rocketray.runtime.ray_process import ray_runtime

def report(text):
    worker.print_to_stdstream({"lines": [text], "pid": "raylet", "is_err": False}, ignore_prefix=False)

logging.basicConfig(level=logging.INFO)
report("Ray's way: who prints JSON is disturbed")
ray_runtime._log_reports()
report("a worker died")
"""


def test_what_ray_reports_goes_to_the_log_and_not_to_stdout() -> None:
    done = subprocess.run(
        [sys.executable, "-c", REPORTS],
        capture_output=True,
        text=True,
        check=True,
        timeout=patience(120),
    )
    assert "Ray's way" in done.stdout
    assert "a worker died" not in done.stdout
    assert "Ray reports: a worker died" in done.stderr


def test_a_ray_that_nobody_listens_for_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(NodeNotRunningError, match=f"the Ray at {address} does not answer"):
        ray_runtime.join_ray(address)


@pytest.mark.parametrize(
    ("last", "said"), [("127.0.0.1:1\n", "the Ray at 127.0.0.1:1 does not"), ("", "no Ray runs")]
)
def test_the_ray_that_auto_stands_for_is_not_waited_for_if_it_has_ended(
    last: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setattr(ray._private.services, "find_gcs_addresses", set)
    (tmp_path / "ray").mkdir()
    if last:
        (tmp_path / "ray" / "ray_current_cluster").write_text(last)
    with pytest.raises(NodeNotRunningError, match=said):
        ray_runtime.join_ray("auto")


def test_a_machine_without_a_raylet_is_told_so_at_once_and_in_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Ray waits for one for a minute, and then reports what it did not find."""

    def wait(**_: object) -> None:
        [told] = caplog.messages
        assert told.endswith("; waiting for a minute at most")
        raise RuntimeError("No node info found")

    monkeypatch.setattr(ray_runtime, "is_refused", lambda _: False)
    monkeypatch.setattr(ray._private.services, "find_node_ids", set)
    monkeypatch.setattr(ray, "init", wait)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(NodeNotRunningError) as raised:
            ray_runtime.join_ray(address)
    assert str(raised.value) == (
        f"no Ray runs on this machine, which a program needs to use the one at {address}; start it "
        f"with: ray start --address={address}"
    )


def test_a_directory_that_is_too_long_for_rays_sockets_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_TMPDIR", "/" + "d" * 43)
    with pytest.raises(ConfigError, match=r"RAY_TMPDIR=/d+ has 44 bytes, of 43 at most: .* unset"):
        ray_runtime.start_ray(1, tmp_path / "token", "disk")
