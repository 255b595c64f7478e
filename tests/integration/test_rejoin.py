"""Programs continue by themselves when their Ray was lost and is back, with the node, at its address."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.harness.commands import COMMAND, ONE_PROCESS, printed, rocketray, start_node
from support.harness.patience import patience, wait_until
from support.nodes.another_ray import AnotherRay, another_ray

PROGRAM = Path(__file__).parent.parent / "support/programs" / "staying.py"
pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(400),
    pytest.mark.slow,
    pytest.mark.proves(
        "durability",
        "Programs on the node's machine and elsewhere, an app and `rocketray consume` "
        "continue when their Ray is back: nothing acknowledged is missing, nothing is stored "
        "twice",
    ),
]


class Program:
    """One that runs, and its notes."""

    def __init__(self, directory: Path, role: str, topic: str, environ: Mapping[str, str]) -> None:
        self._notes = directory / f"{role}.notes"
        self._notes.touch()
        self._log = directory / f"{role}.log"
        place = {"cluster": "default"} if role == "far" else {"data": str(directory / "data")}
        with self._log.open("w") as output:
            self._process = subprocess.Popen(
                [sys.executable, str(PROGRAM), json.dumps(place), topic, str(self._notes), role],
                env=dict(environ), stdout=output, stderr=output,
            )  # fmt: skip

    def noted(self, what: str, since_s: float = 0.0) -> dict[int, float]:
        """The messages of which it noted that, and when it did first, in seconds since 1970."""
        found: dict[int, float] = {}
        for line in self._notes.read_text().splitlines():
            said, number, at_s = line.split()
            if said == what and float(at_s) > since_s:
                found.setdefault(int(number), float(at_s))
        return found

    def said(self) -> str:
        """Its log."""
        return self._log.read_text()

    def await_note(self, what: str, since_s: float = 0.0) -> float:
        """Wait until it noted that; return when it did."""

        def found() -> dict[int, float]:
            notes = self.noted(what, since_s)
            assert notes or self._process.poll() is None, self.said()
            return notes

        return min(wait_until(found, self.said).values())

    def stop_sending(self) -> None:
        """Stop it where it is."""
        self._process.send_signal(signal.SIGSTOP)

    def kill(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait(patience(60))


def lose(ray: AnotherRay, node: subprocess.Popen[bytes]) -> None:
    """End the GCS, the raylet and with them the node."""
    for pid in ray.servers().values():
        os.kill(pid, signal.SIGKILL)
    assert node.wait(patience(60)) == 1
    ray.stop()


def stored(data: Path, topic: str, environ: Mapping[str, str]) -> list[int]:
    """The numbers of a topic's messages, in their order."""
    words = "query", topic, "--from", "0", "--max", "100000", "--json"
    done = rocketray(*words, "--data", data, environ=environ)
    return [int(b64decode(each["body"])) for each in printed(done)]


def test_programs_continue_when_their_ray_is_back(tmp_path: Path) -> None:
    data, printed_to = tmp_path / "data", tmp_path / "printed"
    with another_ray() as ray:
        environ = {**ray.environ, "RAY_ADDRESS": ray.address}
        options = "--ray-address", ray.address, *ONE_PROCESS
        node = start_node(data, tmp_path / "1.log", *options, environ=environ)
        programs: dict[str, Program] = {}
        consumer = None
        try:
            for role, topic in (("near", "Near"), ("far", "Far"), ("app", "Near")):
                programs[role] = Program(tmp_path, role, topic, environ)
                programs[role].await_note("got")
            with printed_to.open("w") as output:
                consumer = subprocess.Popen(
                    [COMMAND, "consume", "Near", "--data", str(data), "--group", "command"],
                    env=environ, stdout=output, stderr=subprocess.DEVNULL,
                )  # fmt: skip
            wait_until(lambda: bool(printed_to.read_text()))
            lose(ray, node)
            lost_s = time.time()
            for role in ("near", "far"):
                programs[role].await_note("unsure", lost_s)
            lines = len(printed_to.read_text().splitlines())
            ray.start()
            node = start_node(data, tmp_path / "2.log", *options, environ=environ)
            ready_s = time.time()
            for role, program in programs.items():
                for what in ("sent", "got") if role != "app" else ("got",):
                    took_s = program.await_note(what, ready_s) - ready_s
                    sys.stdout.write(f"{role}: first {what} {took_s:.1f} s after the node\n")
            wait_until(lambda: len(printed_to.read_text().splitlines()) > lines)
            assert consumer.poll() is None
            for role, topic in (("near", "Near"), ("far", "Far")):
                program = programs[role]
                program.await_note("sent", time.time())
                program.stop_sending()
                found = stored(data, topic, environ)
                assert len(found) == len({*found})
                assert program.noted("sent").keys() <= {*found}
                lines_of_loss = program.said().count("Ray is lost")
                assert lines_of_loss < max(10, (ready_s - lost_s) / 2), "it says so each second"
            before = programs["near"].noted("sent").keys()
            wait_until(lambda: before <= programs["app"].noted("got").keys())
        finally:
            for program in programs.values():
                program.kill()
            for process in filter(None, (consumer, node)):
                process.kill()
                process.wait(patience(60))
