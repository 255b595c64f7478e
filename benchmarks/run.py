"""Runs every benchmark, or those that are named, and writes one JSON file.

    python benchmarks/run.py [--quick] [--output results.json] [NAME …]

The benchmarks themselves are in ``rocketray_bench``; ``rocketray bench NAME`` runs one of them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import orjson

from rocketray_bench.report import BENCHMARKS, Row, run, to_json


def main() -> None:
    """Run, print each row as it is known, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*BENCHMARKS, []], help="default: all")
    parser.add_argument("--quick", action="store_true", help="a smoke run; its figures say little")
    parser.add_argument("--output", type=Path, default=Path("benchmark-results.json"))
    arguments = parser.parse_args()
    rows: list[Row] = []
    for name in arguments.names or BENCHMARKS:
        for row in run(name, quick=arguments.quick):
            print(f"{row.question:72} {row.value:14,.6g} {row.unit:12} ({row.ceiling})", flush=True)
            rows.append(row)
    arguments.output.write_bytes(orjson.dumps(to_json(rows), option=orjson.OPT_INDENT_2))


if __name__ == "__main__":
    main()
