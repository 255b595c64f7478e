from __future__ import annotations

import gc
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark.daemon
import pytest
from support.nodes.shards import Shards

from rocketray.queries.spark import task_worker
from rocketray.queries.spark.daemon import until_closed
from rocketray.queries.spark.source import RocketRaySource
from rocketray.queries.spark.source_columns import default_schema

CODE = """
import sys
from rocketray.queries.spark import daemon
names = daemon.preload()
from rocketray.kernels import consume_queue
print(all(name in sys.modules for name in [*names, "pyarrow"]), consume_queue.match_tags.is_compiled)
"""


def test_workers_find_loaded_what_they_read_with() -> None:
    assert subprocess.check_output([sys.executable, "-c", CODE], text=True) == "True True\n"


def test_workers_collect_no_garbage_among_loaded_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take 90 ms after each task, for which the next one waits."""
    calls: list[str] = []
    monkeypatch.setattr(gc, "freeze", lambda: calls.append("freeze"))
    monkeypatch.setattr("pyspark.daemon.manager", lambda: calls.append("fork workers"))
    monkeypatch.setattr("pyspark.daemon.worker", worker_whose_socket_is_closed)
    monkeypatch.delitem(sys.modules, "rocketray.queries.spark.daemon", raising=False)

    runpy.run_module("rocketray.queries.spark.daemon", run_name="__main__")

    assert calls == ["freeze", "fork workers"]
    serve: Any = pyspark.daemon.worker
    assert serve("a socket", True) == 1


def worker_whose_socket_is_closed(sock: object, authenticated: bool) -> int:
    raise BrokenPipeError(32, "Broken pipe")


def test_a_worker_ends_quietly_with_its_socket_and_only_then() -> None:
    def worker(code: int) -> int:
        if code < 0:
            raise ValueError("the task's own")
        return code

    assert until_closed(worker)(3) == 3
    with pytest.raises(ValueError, match="own"):
        until_closed(worker)(-1)


def test_a_worker_of_another_session_freezes_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(gc, "freeze", lambda: calls.append("freeze"))
    task_worker.freeze_modules.cache_clear()
    with Shards(tmp_path, Trade=1) as shards:
        shards.fill("Trade", 0, 3)
        reader = RocketRaySource({"topic": "Trade", "data": str(tmp_path)}).reader(
            default_schema("rocketray")
        )
        for _ in range(2):
            (task,) = reader.partitions()
            (batch,) = reader.read(task)
            assert isinstance(batch, pa.RecordBatch)
            assert len(batch) == 3

    assert calls == ["freeze"]
