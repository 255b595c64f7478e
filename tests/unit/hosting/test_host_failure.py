"""What a user is told of an error that ended an app: what it is, and where in the app's code."""

from __future__ import annotations

import importlib
import json
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from ray.exceptions import RayActorError, RayError, RuntimeEnvSetupError
from ray.experimental import internal_kv

from rocketray.hosting.host_failure import HostFailure
from rocketray.hosting.stored_failures import last_failure, store_failure, why_no_answer

MODULE = """
import json

def connect(text):
    return json.loads(text)

def wrapped():
    try:
        connect("{")
    except ValueError as error:
        raise KeyError("settings") from error
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "failing_app.py").write_text(MODULE)
    importlib.import_module("failing_app")
    return "failing_app"


def raised(module: str, function: str, *arguments: object) -> Exception:
    try:
        getattr(importlib.import_module(module), function)(*arguments)
    except Exception as error:  # noqa: BLE001  # whatever it is
        return error
    raise AssertionError("it raised nothing")


def test_the_place_is_the_last_line_of_the_authors_own(module: str, tmp_path: Path) -> None:
    failure = HostFailure.of(raised(module, "connect", "{"), 5, module)
    assert (failure.kind, failure.time_ms) == ("JSONDecodeError", 5)
    assert failure.place == f"{tmp_path / 'failing_app.py'}:5", "not in the module json"
    assert str(failure).startswith("JSONDecodeError: Expecting property name")
    assert str(failure).endswith(f"({failure.place})")


def test_the_place_of_an_error_without_own_lines_is_that_of_its_cause(module: str) -> None:
    outer = ValueError("no app")
    outer.__cause__ = raised(module, "wrapped")
    outer.__cause__.__cause__ = outer  # causes may go round
    assert str(HostFailure.of(outer, 0, module).place).endswith("failing_app.py:11")


def test_an_error_that_no_line_of_the_author_raised_has_no_place() -> None:
    try:
        json.loads("{")
    except ValueError as error:
        own = HostFailure.of(error, 0)
    assert str(own.place).startswith(__file__)
    failure = HostFailure.of(ValueError("x"), 0)
    assert failure.place is None
    assert str(failure) == "ValueError: x"


def test_a_failure_outlives_its_process_as_json_and_long_messages_are_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stored: dict[str, str | bytes] = {}

    def put(name: str, text: str, *, overwrite: bool, namespace: str) -> None:
        assert overwrite
        stored[f"{namespace}/{name}"] = text

    def get(name: str, *, namespace: str) -> str | bytes | None:
        return stored.get(f"{namespace}/{name}")

    monkeypatch.setattr(internal_kv, "_internal_kv_put", put)
    monkeypatch.setattr(internal_kv, "_internal_kv_get", get)
    failure = HostFailure.of(ValueError("x" * 10_000 + "\ud800"), 7)
    assert len(failure.message) == 2001
    assert last_failure("shop:0") is None
    store_failure("shop:0", failure)
    assert last_failure("shop:0") == failure
    (place,) = stored
    for other in ("", "[]", "{}", '{"kind": 1', '{"kind": "a", "nothing": 1}', b"\xff"):
        stored[place] = other
        assert last_failure("shop:0") is None


def test_a_failure_names_its_machine() -> None:
    failure = HostFailure.of(ValueError("x"), 0)
    assert failure.machine == socket.gethostname()
    assert failure.is_here
    assert not replace(failure, machine="another").is_here
    assert replace(failure, machine="").is_here, "one of an earlier version"


def test_the_error_of_a_host_without_a_process_is_a_line() -> None:
    setup = RuntimeEnvSetupError("Could not create the actor\n  File x\nOSError: no package")
    assert why_no_answer(setup) == (
        "Ray cannot set up its code: OSError: no package; see runtime_env_agent.log in Ray's logs"
    )
    assert why_no_answer(RayActorError()) == f"its process ended: {RayActorError()}"
    assert why_no_answer(RayError("first\nsecond")) == "first"
    assert why_no_answer(RayError()) == "RayError"


def test_a_machine_without_rocketray_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "The actor died because of an error raised in its creation task, ray::ConsumerHost() "
        "(pid=1, ip=10.0.0.2, actor_id=a)\n  File x\nModuleNotFoundError: No module named 'rocketray'"
    )
    monkeypatch.setattr(RayActorError, "__str__", lambda _: text)
    assert why_no_answer(RayActorError()) == (
        "the Python of Ray on the machine 10.0.0.2 lacks a package: ModuleNotFoundError: No module "
        "named 'rocketray'; install rocketray there, or choose other machines with --label"
    )
