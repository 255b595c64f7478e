"""Run every benchmark, or those that are named, and write one JSON file.

    python benchmarks/run.py [--quick] [--output results.json] [NAME …]

or ``make bench BENCH_ARGS="NAME …"``. A benchmark is a module that asks one question: for users in
``rocketray_bench``, where ``rocketray bench NAME`` runs it, too; for developers in ``questions``.
"""

from __future__ import annotations

import argparse
import ast
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import orjson

from rocketray_bench.command import BENCHMARKS
from rocketray_bench.report import Row, run, to_json

_QUESTIONS = Path(__file__).with_name("questions")


def modules() -> dict[str, str]:
    """Return the modules of the benchmarks by name: those for users, then those for developers."""
    for_users = {name: f"rocketray_bench.{name}" for name in BENCHMARKS}
    names = sorted(path.stem for path in _QUESTIONS.glob("[!_]*.py"))
    return for_users | {name: f"questions.{name}" for name in names}


def question(module: str) -> str:
    """Return the first line of a module's docstring, and import nothing for it."""
    spec = find_spec(module)
    assert spec
    assert spec.origin
    docstring = ast.get_docstring(ast.parse(Path(spec.origin).read_text())) or ""
    return docstring.partition("\n")[0]


def main() -> None:
    """Run, print each row as it is known, and write the file."""
    known = modules()
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="\n".join(f"  {name:15} {question(module)}" for name, module in known.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "names", metavar="NAME", nargs="*", choices=[*known, []], help="a benchmark; default: all"
    )
    parser.add_argument("--quick", action="store_true", help="a smoke run; its figures say little")
    parser.add_argument("--output", type=Path, default=Path("benchmark-results.json"))
    arguments = parser.parse_args()
    rows: list[Row] = []
    for name in arguments.names or known:
        for row in run(import_module(known[name]), quick=arguments.quick):
            print(f"{row.question:72} {row.value:14,.6g} {row.unit:12} ({row.ceiling})", flush=True)
            rows.append(row)
    arguments.output.write_bytes(orjson.dumps(to_json(rows), option=orjson.OPT_INDENT_2))


if __name__ == "__main__":
    main()
