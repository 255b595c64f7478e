"""``rocketray console``: where the hosts of apps come from, and refusals."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, cast

import pytest
from support.command_server import run_here

from rocketray.actors.api.node_client import NodeClient
from rocketray.cli.nodes.console_command import HostRecords, doctor_records
from rocketray.errors import ActorError

NODE = cast("NodeClient", None)
PRINTS = """
import pathlib, sys
count = pathlib.Path(sys.argv[-1], "count")
count.write_text(count.read_text() + "x" if count.exists() else "x")
print('{"app": "shop", "host": 0}')
print('{"verified": []}')
"""


def test_hosts_are_those_of_status_and_are_kept(tmp_path: Path) -> None:
    records = HostRecords([sys.executable, "-c", PRINTS, str(tmp_path)])
    expected: list[dict[str, Any]] = [{"app": "shop", "host": 0}]
    assert records(NODE) == records(NODE) == expected
    assert (tmp_path / "count").read_text() == "x"
    fresh = HostRecords([sys.executable, "-c", PRINTS, str(tmp_path)], kept_s=0)
    assert fresh(NODE) == fresh(NODE) == expected
    assert (tmp_path / "count").read_text() == "xxx"


def test_a_status_that_fails_is_unknown_and_not_empty(tmp_path: Path) -> None:
    records = HostRecords([sys.executable, "-c", "import sys; sys.exit('it burns')"])
    with pytest.raises(ActorError, match="rocketray status failed: it burns"):
        records(NODE)


def test_the_doctor_s_checks_are_its_lines_also_where_one_failed(tmp_path: Path) -> None:
    prints = 'import sys; print(\'{"check": "disk", "level": "error"}\'); sys.exit(1)'
    found = doctor_records([sys.executable, "-c", prints])
    assert found == [{"check": "disk", "level": "error"}]
    with pytest.raises(ActorError, match="rocketray doctor failed: it burns"):
        doctor_records([sys.executable, "-c", "import sys; sys.exit('it burns')"])


def test_an_address_of_traces_without_a_place_for_the_id_is_refused(tmp_path: Path) -> None:
    wrong = run_here("console", "--data", tmp_path, "--trace-url", "http://localhost/trace")
    assert (wrong.code, "{trace_id} in it" in wrong.err) == (1, True)


def test_without_a_node_and_for_two_it_refuses(tmp_path: Path) -> None:
    absent = run_here("console", "--data", tmp_path)
    assert absent.code == 1
    assert "no node runs" in absent.err
    both = run_here("--cluster", "x", "console", "--data", tmp_path)
    assert both.code == 1
    assert "name two nodes; leave one out" in both.err
