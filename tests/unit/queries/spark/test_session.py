from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rocketray.errors import StreamError
from rocketray.queries.spark import session as session_module
from rocketray.queries.spark.session import check_callbacks, spark_settings


@pytest.mark.proves("spark", "Nothing listens outside the loopback interface")
def test_nothing_listens_outside_and_the_jvm_reads_our_log_settings() -> None:
    settings = spark_settings(3, "2g")
    option = settings["spark.driver.extraJavaOptions"]

    assert settings["spark.driver.bindAddress"] == "127.0.0.1"
    assert settings["spark.ui.enabled"] == "false"
    assert settings["spark.driver.memory"] == "2g"
    assert Path(option.partition("file://")[2]).is_file()
    assert "spark.sql.warehouse.dir" not in settings


def test_a_work_directory_keeps_what_spark_writes_on_the_side(tmp_path: Path) -> None:
    settings = spark_settings(1, "1g", tmp_path, short_lived=True)

    assert settings["spark.local.dir"] == str(tmp_path / "local")
    assert settings["spark.sql.warehouse.dir"] == str(tmp_path / "warehouse")
    assert "TieredStopAtLevel=1" in settings["spark.driver.extraJavaOptions"]


@pytest.mark.proves("spark", "A process with many open files is refused")
def test_a_process_with_many_open_files_is_told_that_spark_cannot_call_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert session_module._SELECTABLE == 1024  # FD_SETSIZE, which Python does not tell
    with Path(os.devnull).open() as file:
        limit = file.fileno() + 20
    monkeypatch.setattr(session_module, "_SELECTABLE", limit)
    gateway = SimpleNamespace()
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(_gateway=gateway))
    with ExitStack() as stack:
        check_callbacks(session)
        while stack.enter_context(Path(os.devnull).open()).fileno() < limit:
            pass
        with pytest.raises(StreamError, match=rf"files open; py4j can use the first {limit} only"):
            check_callbacks(session)
        gateway._callback_server = object()
        check_callbacks(session)
