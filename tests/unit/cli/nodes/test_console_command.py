"""``rocketray console``: the checks that it shows, and refusals."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.harness.command_server import run_here

from rocketray.cli.nodes import console_command
from rocketray.cli.nodes.console_command import doctor_records
from rocketray.errors import ActorError


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


def test_a_cluster_that_does_not_answer_is_told_without_the_command_that_was_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As while a standby takes over."""
    says = "import sys; sys.exit('rocketray: cluster x does not answer; try again')"
    monkeypatch.setattr(console_command, "_ROCKETRAY", [sys.executable, "-c", says])
    done = run_here("--cluster", "x", "console")
    assert done.code == 1
    assert done.err == (
        "rocketray: the console does not start: cluster x does not answer; try again\n"
    )
