"""``make test-slow``: the long forms, then every random test in full, and one verdict at the end.

A part that fails does not end the run, since it takes hours. Arguments are handed to pytest in each
part.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from support.harness.source_tree import ROOT

PARTS: Mapping[str, Sequence[str]] = {
    "the long forms": ["-m", "slow"],
    # those that use support/harness/amounts.py
    "the random tests in full": [
        *("-m", "not slow and not lint"),
        *("tests/property", "tests/crash", "tests/unit/filters"),
        *("tests/unit/broker/backups", "tests/unit/queries/ray_data"),
    ],
}
_NONE_COLLECTED = 5
"""pytest's exit code where the arguments choose no test of a part."""


def verdict(codes: Mapping[str, int], seconds: float) -> str:
    """Return the last line: what failed, or that nothing did."""
    failed = [part for part, code in codes.items() if code not in (0, _NONE_COLLECTED)]
    tested = [part for part, code in codes.items() if code != _NONE_COLLECTED]
    said = f"FAILED: {', '.join(failed)}" if failed else "all passed"
    return f"make test-slow, {len(tested)} of {len(codes)} parts in {seconds / 60:.0f} min: {said}"


def main() -> int:
    """Run the parts; 1 if one failed, or none had a test."""
    begun_s = time.monotonic()
    environ = {**os.environ, "ROCKETRAY_TEST_ALL": "1"}
    codes = {}
    for part, chosen in PARTS.items():
        sys.stdout.write(f"make test-slow: {part}\n")
        sys.stdout.flush()
        command = [sys.executable, "-m", "pytest", *chosen, *sys.argv[1:]]
        codes[part] = subprocess.run(command, cwd=ROOT, env=environ, check=False).returncode
    sys.stdout.write(verdict(codes, time.monotonic() - begun_s) + "\n")
    has_tested = any(code != _NONE_COLLECTED for code in codes.values())
    return 0 if has_tested and {*codes.values()} <= {0, _NONE_COLLECTED} else 1


if __name__ == "__main__":
    raise SystemExit(main())
