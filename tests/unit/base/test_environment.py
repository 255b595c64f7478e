"""The process's environment: what is set in it for a while, and what comes back."""

from __future__ import annotations

import os

import pytest

from rocketray.base.environment import process_environ, with_environ


def test_variables_are_set_for_a_while_and_come_back() -> None:
    with with_environ({"ROCKETRAY_TEST_OUTER": "1"}):
        with with_environ({"ROCKETRAY_TEST_OUTER": "2", "ROCKETRAY_TEST_INNER": "3"}):
            assert os.environ["ROCKETRAY_TEST_OUTER"] == "2"
            assert os.environ["ROCKETRAY_TEST_INNER"] == "3"
        assert os.environ["ROCKETRAY_TEST_OUTER"] == "1"
    assert "ROCKETRAY_TEST_OUTER" not in os.environ
    assert "ROCKETRAY_TEST_INNER" not in os.environ


def test_variables_are_unset_for_a_while_and_come_back_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ROCKETRAY_TEST_SET", "1")
    monkeypatch.delenv("ROCKETRAY_TEST_UNSET", raising=False)
    with with_environ({"ROCKETRAY_TEST_SET": None, "ROCKETRAY_TEST_UNSET": None}):
        assert "ROCKETRAY_TEST_SET" not in process_environ()
        os.environ["ROCKETRAY_TEST_UNSET"] = "by what runs inside"
    assert process_environ()["ROCKETRAY_TEST_SET"] == "1"
    assert "ROCKETRAY_TEST_UNSET" not in process_environ()
