"""``deploy/machine.sh`` keeps Ray and a node running, over programs that stand in for both."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.harness.deployment import DEPLOY, path_with
from support.harness.patience import patience, wait_until

from rocketray.runtime.ray_process.ray_runtime import DISK_LABEL

DISK = "0b2e9d0e-9a35-4d1f-8d3f-6c7f0f1f9a11"

# Ray and the node as far as a supervisor sees them; what they are told is in $SAID.
RAY = """#!/bin/bash
echo "ray $*" >> "$SAID"
[ "$1" = start ] || exit 1
echo $$ > "$SAID.ray"
ln -sf "$(command -v sleep)" "${0%/*}/raylet"
raylet 60 & echo $! > "$SAID.raylet"
trap 'kill $!; exit 0' TERM
while [ -e "$SAID.slow" ]; do sleep 0.1; done
exec 8> "${SAID%/*}/ray_process_exit.log"
while sleep 0.1; do :; done
"""
NODE = f"""#!/bin/bash
case $1 in
  disk) mkdir -p "$3"; echo {DISK};;
  start)
    trap 'sleep 0.2; echo saved >> "$SAID"; exit 0' TERM
    echo $$ > "$SAID.node"; echo "node $*" >> "$SAID"
    while kill -0 "$(cat "$SAID.ray")"; do sleep 0.05; done
    exit 1;;
esac
"""


class Supervisor:
    """``machine.sh`` over programs that stand in for Ray and the node."""

    def __init__(self, directory: Path, *options: str, is_slow: bool = False) -> None:
        self.data = directory / "data"
        self.said = directory / "said"
        self.slow = directory / "said.slow"
        """While it is there, ``ray start`` has not started Ray yet."""
        if is_slow:
            self.slow.touch()
        path = path_with(directory / "bin", {"ray": RAY, "rocketray": NODE})
        self.environ = {**os.environ, "PATH": path, "SAID": str(self.said)}
        self.command = [
            str(DEPLOY / "machine.sh"),
            str(self.data),
            *options,
            "ray",
            "start",
            "--head",
        ]
        self.process = subprocess.Popen(self.command, env=self.environ)

    def lines(self) -> list[str]:
        return self.said.read_text().splitlines() if self.said.exists() else []

    def await_lines(self, count: int) -> list[str]:
        def are_there() -> bool:
            assert self.process.poll() is None
            return len(self.lines()) >= count

        wait_until(are_there, self.lines)
        return self.lines()

    def pid(self, of: str) -> int:
        """The process of that name: its id is written a moment after the line about it."""
        told = Path(f"{self.said}.{of}")
        return int(wait_until(lambda: told.read_text().strip() if told.is_file() else ""))


@contextmanager
def supervised(directory: Path, *options: str, is_slow: bool = False) -> Iterator[Supervisor]:
    made = Supervisor(directory, *options, is_slow=is_slow)
    try:
        made.await_lines(1 if is_slow else 2)
        yield made
    finally:
        made.process.terminate()
        made.process.wait(patience(60))


def test_the_head_starts_ray_with_the_label_and_the_node_on_it(tmp_path: Path) -> None:
    with supervised(tmp_path) as head:
        assert head.lines() == [
            f"ray start --head --labels={DISK_LABEL}={DISK} --block",
            f"node start --ray-address auto --data {head.data}",
        ]
        os.kill(head.process.pid, signal.SIGTERM)
        assert head.process.wait(patience(60)) == 0
        assert head.lines()[2:] == ["saved"]
        assert not Path(f"/proc/{head.pid('ray')}").exists()


def test_a_node_that_ends_is_started_again_on_the_same_ray(tmp_path: Path) -> None:
    with supervised(tmp_path) as head:
        os.kill(head.pid("node"), signal.SIGKILL)
        assert head.await_lines(3)[2].startswith("node start ")


def test_when_ray_fails_both_are_started_again(tmp_path: Path) -> None:
    with supervised(tmp_path) as head:
        os.kill(head.pid("ray"), signal.SIGKILL)
        ray, node = head.await_lines(4)[2:]
        assert (ray, node) == tuple(head.lines()[:2])


def test_a_ray_that_was_stopped_is_not_started_again(tmp_path: Path) -> None:
    """``ray stop`` ends the servers, and ``ray start --block`` waits on."""
    with supervised(tmp_path) as head:
        os.kill(head.pid("raylet"), signal.SIGTERM)
        os.kill(head.pid("node"), signal.SIGTERM)
        assert head.process.wait(patience(60)) == 0
        assert head.lines()[2:] == ["saved"]


def test_a_ray_that_fails_slowly_is_started_again(tmp_path: Path) -> None:
    """Its raylet has ended, and ``ray start --block`` ends what else there is of it."""
    with supervised(tmp_path) as head:
        ray = head.pid("ray")
        os.kill(head.pid("raylet"), signal.SIGKILL)
        os.kill(head.pid("node"), signal.SIGKILL)
        time.sleep(4.0)  # machine.sh looks at both after 2 s
        assert Path(f"/proc/{ray}").exists()
        os.kill(ray, signal.SIGKILL)
        assert head.await_lines(4)[2:] == head.lines()[:2]


def test_a_node_begins_when_ray_has_started_and_nothing_else_of_ray_is_run_meanwhile(
    tmp_path: Path,
) -> None:
    with supervised(tmp_path, is_slow=True) as head:
        head.pid("raylet")
        time.sleep(1.5)  # machine.sh looks every half second
        (started,) = head.lines()
        head.slow.unlink()
        assert head.await_lines(2) == [started, f"node start --ray-address auto --data {head.data}"]


def test_a_raylet_that_ends_early_is_no_ray_that_was_stopped(tmp_path: Path) -> None:
    """``ray start`` notices it late, since it still waits for it to join the cluster."""
    with supervised(tmp_path, is_slow=True) as head:
        os.kill(head.pid("raylet"), signal.SIGKILL)
        time.sleep(1.5)
        (started,) = head.lines()
        head.slow.unlink()
        os.kill(head.pid("ray"), signal.SIGKILL)
        again, node = head.await_lines(3)[1:]
        assert (again, node.split()[:2]) == (started, ["node", "start"])


def test_a_node_that_joins_is_told_so_and_is_started_again_while_its_raylet_lives(
    tmp_path: Path,
) -> None:
    with supervised(tmp_path, "--cluster", "orders", "--join") as worker:
        node = f"node start --ray-address auto --data {worker.data} --cluster orders --join"
        assert worker.lines()[1] == node
        os.kill(worker.pid("node"), signal.SIGTERM)  # as it ends when the head is lost
        assert worker.await_lines(4)[2:] == ["saved", node]


def test_a_command_for_ray_is_required(tmp_path: Path) -> None:
    done = subprocess.run(
        [str(DEPLOY / "machine.sh"), str(tmp_path), "--join"],
        capture_output=True, text=True, timeout=patience(60), check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("machine.sh: no command starts Ray; usage: ")


def test_one_process_keeps_a_node_running(tmp_path: Path) -> None:
    with supervised(tmp_path) as head:
        second = subprocess.run(
            head.command,
            env=head.environ,
            capture_output=True,
            text=True,
            timeout=patience(60),
            check=False,
        )
        assert second.returncode == 1
        assert f"process {head.process.pid} keeps a node on {head.data} running" in second.stderr
        assert len(head.lines()) == 2
