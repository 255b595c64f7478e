"""``make test-rough``: ``make test`` on other people's machines, one kind after the other.

    loops          beside two programs that compute without end
    one-processor  on one processor, beside such a program
    proxy          with a proxy in the environment that answers nothing
    few-rights     without git, and without the right to mount
    python3.12     with that Python, in an environment of its own; python3.13 in the same way

Each is a word of the option: ``make test-rough ROUGH="loops proxy"``; without words all are run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from support.harness.source_tree import ROOT

_LOOP = [sys.executable, "-c", "while True: pass"]
_NOWHERE = "http://127.0.0.1:9"
_NO_RIGHT = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"]
_PYTHONS = ("python3.12", "python3.13")


@dataclass
class Rough:
    """How ``make test`` is run: the words before it and behind it, and its environment."""

    running: ExitStack
    before: list[str] = field(default_factory=list)
    options: list[str] = field(default_factory=list)
    environ: dict[str, str] = field(default_factory=lambda: dict(os.environ))

    def beside(self, *commands: Sequence[str]) -> None:
        """Have *commands* run for as long as the tests do."""
        for command in commands:
            process = subprocess.Popen(command)
            self.running.callback(process.wait)
            self.running.callback(process.kill)


def _loops(run: Rough) -> None:
    run.beside(_LOOP, _LOOP)


def _one_processor(run: Rough) -> None:
    alone = ["taskset", "--cpu-list", str(min(os.sched_getaffinity(0)))]
    run.before = alone
    run.beside([*alone, *_LOOP])


def _proxy(run: Rough) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "grpc_proxy"):
        run.environ |= {name: _NOWHERE, name.upper(): _NOWHERE}
    for name in ("no_proxy", "NO_PROXY"):
        run.environ.pop(name, None)


def _few_rights(run: Rough) -> None:
    run.before = list(_NO_RIGHT)
    run.environ["PATH"] = str(run.running.enter_context(_path_without("git")))


def _python(name: str) -> Callable[[Rough], None]:
    def prepare(run: Rough) -> None:
        run.options = [f"PYTHON={name}", f"VENV=.venv-{name}"]

    return prepare


@contextmanager
def _path_without(missing: str) -> Iterator[Path]:
    """A directory with every program of the path but those whose name begins with *missing*."""
    with tempfile.TemporaryDirectory(prefix="path-") as name:
        directory = Path(name)
        for place in os.get_exec_path():
            for program in Path(place).glob("*"):
                link = directory / program.name
                if not program.name.startswith(missing) and not link.is_symlink():
                    link.symlink_to(program)
        yield directory


KINDS: dict[str, Callable[[Rough], None]] = {
    "loops": _loops,
    "one-processor": _one_processor,
    "proxy": _proxy,
    "few-rights": _few_rights,
    **{name: _python(name) for name in _PYTHONS},
}


def _runs(python: str) -> bool:
    """Return whether that name runs: it may be a shim that knows no such version."""
    try:
        return subprocess.run([python, "-V"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def _run(kind: str) -> tuple[bool, str]:
    begun_s = time.monotonic()
    with ExitStack() as running:
        run = Rough(running)
        run.environ.pop("PYTHONPATH", None)  # this program's
        KINDS[kind](run)
        command = [*run.before, "make", "test", *run.options]
        done = subprocess.run(command, cwd=ROOT, env=run.environ, check=False)
    said = "passed" if done.returncode == 0 else f"FAILED with {done.returncode}"
    minutes = (time.monotonic() - begun_s) / 60
    return done.returncode == 0, f"{kind}: {said} in {minutes:.0f} min"


def main(kinds: Sequence[str]) -> int:
    """Run those kinds, or all; 1 if one failed."""
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        sys.stderr.write(f"there is no {', '.join(unknown)}; there are: {', '.join(KINDS)}\n")
        return 2
    found = []
    for kind in kinds or KINDS:
        if kind in _PYTHONS and not _runs(kind):
            found.append((False, f"{kind}: FAILED, there is no {kind} on the path that runs"))
            continue
        sys.stdout.write(f"make test-rough: {kind}\n")
        sys.stdout.flush()
        found.append(_run(kind))
    sys.stdout.write("\n".join(["make test-rough:", *(said for _, said in found)]) + "\n")
    return 0 if all(passed for passed, _ in found) else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
