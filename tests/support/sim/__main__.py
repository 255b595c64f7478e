"""``make sim``: run seeds, print how many a second, what happened in them, and which failed.

With ``--mutants`` each planted bug has to be found within ``--count`` seeds.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count
from math import inf

from .mutants import MUTANTS, Mutant
from .run import run_seeds

_SAY_EVERY_S = 60.0


def main() -> int:
    """Do what the command line says; 1 if a seed failed, or a planted bug was not found."""
    parser = argparse.ArgumentParser(prog="python -m support.sim", description=__doc__)
    parser.add_argument("--first", type=int, default=1, help="the first seed (default: 1)")
    parser.add_argument("--count", type=int, help="how many seeds (default: 10000)")
    parser.add_argument("--seconds", type=float, default=inf, help="begin no seed after that long")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--log", action="store_true", help="print what happened in each run")
    parser.add_argument("--digests", action="store_true", help="print a digest of each run")
    parser.add_argument("--mutants", nargs="*", help="plant these bugs, by default all, one a run")
    given = parser.parse_args()
    if given.mutants is not None:
        chosen = [one for one in MUTANTS if not given.mutants or one.name in given.mutants]
        return 0 if _plant(chosen, given) else 1
    return 0 if _simulate(given) else 1


def _simulate(given: argparse.Namespace) -> bool:
    begin_s = said_s = time.monotonic()
    failed: list[int] = []
    figures: Counter[str] = Counter()
    total = 0
    for outcome in run_seeds(_seeds(given, begin_s), given.workers):
        total += 1
        figures.update(outcome.figures)
        if given.log:
            print("\n".join(outcome.log))
        if given.digests:
            print(f"seed {outcome.seed}: {outcome.digest}")
        if outcome.failure:
            failed.append(outcome.seed)
            print(f"seed {outcome.seed}: {outcome.failure}", flush=True)
        if time.monotonic() > said_s + _SAY_EVERY_S:
            said_s = time.monotonic()
            print(f"{total} seeds in {said_s - begin_s:.0f} s, {len(failed)} failed", flush=True)
    took_s = time.monotonic() - begin_s
    happened = ", ".join(f"{number:,} {name}" for name, number in sorted(figures.items()))
    print(f"{total} seeds in {took_s:.0f} s, {total / took_s:.2f} a second: {happened}")
    print(f"failed: {', '.join(map(str, sorted(failed)))}" if failed else "no failure")
    return not failed


def _plant(mutants: list[Mutant], given: argparse.Namespace) -> bool:
    """Print a row of the table of planted bugs for each."""
    missed = 0
    for mutant in mutants:
        total, begin_s = 0, time.monotonic()
        found = "not found"
        for outcome in run_seeds(_seeds(given, begin_s), given.workers, mutant.plant):
            total += 1
            if outcome.failure:
                found = outcome.failure.splitlines()[0]
                break
        missed += found == "not found"
        print(f"| {mutant.name} | {mutant.what} | {total} | {found:.160} |", flush=True)
    return not missed


def _seeds(given: argparse.Namespace, begin_s: float) -> Iterator[int]:
    limited = inf if given.seconds < inf else 10_000
    most = limited if given.count is None else given.count
    for number in count():
        if number >= most or time.monotonic() - begin_s > given.seconds:
            return
        yield given.first + number


if __name__ == "__main__":
    sys.exit(main())
