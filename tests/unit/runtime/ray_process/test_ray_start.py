"""What is replaced in Ray while it starts: as briefly as said, and with the same results."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from rocketray.runtime.ray_process import ray_start
from rocketray.runtime.ray_process.ray_start import small_and_soon


def replaced() -> tuple[Any, ...]:
    private = ray._private
    services = private.services
    return (
        private.parameter.RayParams,
        services.start_api_server,
        services.get_node,
        services.start_raylet,
        private.utils.get_dashboard_dependency_error,
    )


def test_ray_is_as_it_was_afterwards_also_if_it_does_not_start() -> None:
    before = replaced()

    def fail_to_start() -> None:
        with small_and_soon():
            assert all(now is not then for now, then in zip(replaced(), before, strict=True))
            raise RuntimeError("no start")

    with pytest.raises(RuntimeError):
        fail_to_start()
    assert replaced() == before


class State:
    """Ray's global state: a node registers with the third question."""

    asked = 0

    def _initialize_global_state(self, options: object) -> None:
        assert options == "options of gcs:1"

    def node_table(self) -> list[dict[str, Any]]:
        State.asked += 1
        return [{"NodeID": "other"}, *([{"NodeID": "ours"}] if State.asked > 2 else [])]


def test_ray_is_asked_for_its_node_when_that_is_registered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    services = ray._private.services
    monkeypatch.setattr(ray._private.state, "GlobalState", State)
    monkeypatch.setattr(services, "_get_gcs_client_options", "options of {}".format)
    pauses: list[float] = []
    monkeypatch.setattr("rocketray.runtime.ray_process.ray_start.time.sleep", pauses.append)
    monkeypatch.setattr(services, "get_node", lambda *asked: (State.asked, asked))
    with small_and_soon():
        assert services.get_node("gcs:1", "ours") == (3, ("gcs:1", "ours"))
    assert pauses == [0.02, 0.02]


def test_a_raylet_that_ends_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    services = ray._private.services
    with subprocess.Popen(["false"]) as process:
        process.wait()
    monkeypatch.setattr(ray._private.state, "GlobalState", State)
    monkeypatch.setattr(State, "asked", -1_000_000)
    monkeypatch.setattr(services, "_get_gcs_client_options", "options of {}".format)
    monkeypatch.setattr(services, "start_raylet", lambda *_: SimpleNamespace(process=process))
    with small_and_soon():
        assert services.start_raylet("gcs:1").process is process
        with pytest.raises(ChildProcessError, match="its raylet has ended with code 1"):
            services.get_node("gcs:1", "ours")


@pytest.mark.parametrize("has_grpc", [True, False])
def test_the_dashboards_parts_are_only_looked_for_where_the_first_one_is(
    monkeypatch: pytest.MonkeyPatch, has_grpc: bool
) -> None:
    looked: list[bool] = []
    missing: Callable[[], Any] = lambda: looked.append(True)  # noqa: E731
    monkeypatch.setattr(ray._private.utils, "get_dashboard_dependency_error", missing)
    monkeypatch.setattr(ray_start, "find_spec", lambda _: object() if has_grpc else None)
    with small_and_soon():
        found = ray._private.utils.get_dashboard_dependency_error()
    assert (looked, found is None) == ([True] if has_grpc else [], has_grpc)
