"""Workers of gunicorn that were forked from a master with the program: ``--preload``."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.harness.patience import patience, wait_until
from support.harness.source_tree import ROOT
from support.nodes.local_node import LocalNode
from support.nodes.register_servers import free_port
from support.nodes.serving_node import serving

PROGRAM = ROOT / "tests/support/programs/gunicorn_program.py"


@pytest.mark.proves(
    "durability",
    "Workers of gunicorn with `--preload` send by their own producers, and the master's is "
    "untouched",
)
def test_each_worker_sends_by_its_own_producer_and_the_masters_is_untouched(
    tmp_path: Path,
) -> None:
    port = free_port()

    def get(path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=patience(30))
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def answers() -> bool:
        assert server.poll() is None, (tmp_path / "log").read_text()
        try:
            return get("/first")[0] == 200
        except OSError:
            return False

    options = ["--config", "python:gunicorn_program", "--bind", f"127.0.0.1:{port}"]
    paths = os.pathsep.join([str(PROGRAM.parent), *filter(None, sys.path)])
    with LocalNode(tmp_path / "data") as node, serving(node), (tmp_path / "log").open("w") as log:
        node.topics.ensure("WebOrders", 1)
        server = subprocess.Popen(
            [sys.executable, "-m", "gunicorn", *options, "gunicorn_program:application"],
            env={**os.environ, "ROCKETRAY_DATA": str(node.data), "PYTHONPATH": paths},
            stdout=log,
            stderr=log,
        )
        try:
            wait_until(answers, (tmp_path / "log").read_text)
            found = [get(f"/{number}") for number in range(20)]
            status, refused = get("/inherited")
            server.send_signal(signal.SIGHUP)  # a master with --preload forks other workers
            found += [get(f"/{number}") for number in range(20, 30)]
            server.send_signal(signal.SIGTERM)
            assert server.wait(patience(30)) == 0, (tmp_path / "log").read_text()
        finally:
            server.kill()
            server.wait()
        stored = {message.unique_key: message.body for message in node.stored("WebOrders")}
    assert {status for status, _ in found} == {200}
    assert status == 503
    assert "this producer was made in process" in refused
    told = [text.split(" ")[1] for _, text in found]
    assert [stored[each] for each in told] == [b"/%d" % number for number in range(30)]
    assert b"of the master" in stored.values()
