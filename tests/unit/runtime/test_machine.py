"""A process is looked for on its own machine only."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from rocketray.runtime.machine import Whereabouts, here, this_process, user_name, whereabouts

HERE = here()
OTHER = {"machine": "elsewhere", "bootId": "another", "processNames": "pid:[1]"}


def gone() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
        return process.pid


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        (HERE, "here"),
        ({}, "here"),  # as it was written before
        ({**HERE, "machine": "renamed"}, "here"),
        ({**HERE, "bootId": "before"}, "gone"),  # this machine, before it was started anew
        (OTHER, "elsewhere"),
        ({**HERE, "processNames": "pid:[1]", "machine": "container"}, "elsewhere"),
        ({**OTHER, "bootId": HERE["bootId"]}, "elsewhere"),
    ],
)
def test_a_living_process_is_here_only_on_its_own_machine(
    machine: dict[str, str], expected: Whereabouts
) -> None:
    assert whereabouts({"pid": os.getpid(), **machine}) == expected


def test_a_process_that_ended_is_gone() -> None:
    assert whereabouts({"pid": gone(), **HERE}) == "gone"
    for pid in (0, -1, 2**70, None, "x"):
        assert whereabouts({"pid": pid, **HERE}) == "gone"


def test_another_process_of_the_same_number_is_not_the_described_one() -> None:
    """As in a container that was started again, with the number of the first one's name space."""
    assert whereabouts(this_process()) == "here"
    before = this_process()["startedTicks"] - 1
    assert whereabouts({**this_process(), "startedTicks": before}) == "gone"


def test_a_user_without_a_name_is_told_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that gives its process any user id."""
    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 7)
    assert user_name() == f"uid {2**31 - 7}"
