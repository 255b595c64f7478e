"""What Apache RocketMQ's own Java code answered: the test data in ``tests/data/rocketmq``.

Made from apache/rocketmq commit 8fc57f1468, and ``allocation`` from release 5.3.3, on OpenJDK 17,
its classes unmodified. The texts are UTF-16, so some hold lone surrogates: read them with the
standard ``json``.
"""

from __future__ import annotations

import json
from typing import Any

from support.harness.source_tree import ROOT

DATA = ROOT / "tests/data"


def golden_rows(name: str) -> list[dict[str, Any]]:
    """The rows of one of the files, by its name without the ending."""
    lines = (DATA / "rocketmq" / f"{name}.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


def sql92_differences() -> dict[int, str]:
    """The rows of ``sql92.jsonl`` where we differ on purpose: id to reason."""
    lines = (DATA / "sql92_differences.txt").read_text("utf-8").splitlines()
    pairs = (line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))
    return {int(row_id): reason for row_id, reason in pairs}
