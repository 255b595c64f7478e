"""What a node does before it has a Ray, and in which order it ends without its coordinator."""

from __future__ import annotations

import os
import socket
import stat
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rocketray.actors.cluster import node as node_module
from rocketray.actors.cluster.node import Node
from rocketray.actors.cluster.node_options import NodeOptions
from rocketray.actors.cluster.registered_documents import RegisterOfStart
from rocketray.errors import ActorError, NodeNotRunningError
from rocketray.runtime.files.home import Home
from rocketray.runtime.files.node_lock import lock_node
from rocketray.runtime.files.paths import node_file
from rocketray.runtime.ray_process.ray_runtime import RayActorError
from rocketray.runtime.ray_process.ray_watch import AwayNote

pytestmark = pytest.mark.proves(
    "durability",
    "The node of the first disk that has lost its coordinator ends its own actors and no "
    "other node's, and learns from the register who has the cluster, whether that answers "
    "yet or not",
)


def mode_after_lock(data: Path, mode: int = NodeOptions().data_mode) -> int:
    os.close(lock_node(data, mode))
    return stat.S_IMODE(data.stat().st_mode)


def test_a_new_directory_is_for_its_user_alone_unless_something_else_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert mode_after_lock(tmp_path / "usual") == 0o700
    assert mode_after_lock(tmp_path / "shared", 0o750) == 0o750
    assert mode_after_lock(tmp_path / "shared", 0o750) == 0o750
    assert not caplog.records


def test_a_wider_one_that_was_there_is_told_and_not_changed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = tmp_path / "wide"
    data.mkdir()
    data.chmod(0o755)
    assert mode_after_lock(data) == 0o755
    [line] = caplog.messages
    assert f"{data}: other users of this machine can read" in line
    assert f"chmod 700 {data}" in line


def test_who_names_a_ray_that_is_down_is_not_told_to_start_the_node_again(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(NodeNotRunningError) as caught:
        Node(tmp_path / "data", NodeOptions(ray_address=address))
    told = str(caught.value)
    assert told.startswith(f"the Ray at {address} does not answer (")
    assert "start it first (ray start --head)" in told
    assert "rocketray start" not in told


class Ending:
    """A node on a Ray that it joined, whose coordinator has ended; and what it does, in order."""

    def __init__(self, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.told: list[str] = []
        self.fails: Exception | None = None
        self.node = node = Node.__new__(Node)
        node.data = node._first_data = data
        node._lock = lock_node(data)
        node._home = Home(str(data), "00000000-0000-0000-0000-000000000001", "here", cluster="c")
        node._register, node._superseded = RegisterOfStart("memory://test", "ours"), "call"
        node._coordinator = node._filter = SimpleNamespace(stop=SimpleNamespace(remote=str))
        node._service = node._standby = node._runtime = node._lost = None
        node._owns_ray, node._leaves_actors = False, True
        node._away = AwayNote()
        node._watch = SimpleNamespace(lost=lambda: None, is_gcs_away=False)  # type: ignore[assignment]
        node._ending, node._stopped, node._stopping = (
            threading.Lock(),
            threading.Event(),
            threading.Event(),
        )
        node_file(data).write_text("{}")
        monkeypatch.setattr(node_module, "has_ended", lambda call: call == "call")
        monkeypatch.setattr(node_module, "end_own_actors", self._end_own_actors)
        monkeypatch.setattr(node_module, "end_actors", lambda *_: self.tell("ended by names"))
        monkeypatch.setattr(node_module, "why_superseded", self._why)
        monkeypatch.setattr(node_module, "lose_node", lambda _, error: self.tell(f"lost: {error}"))
        monkeypatch.setattr(node_module, "ray", SimpleNamespace(get=self._get))

    def tell(self, what: str) -> None:
        assert self.node.lost() is None, f"{what}, after the program was told to end"
        assert not node_file(self.node.data).exists()
        self.told.append(what)

    def _end_own_actors(self, *_: Any) -> None:
        self.tell("ended actors")
        if self.fails is not None:
            raise self.fails

    def _why(self, home: Home, register: RegisterOfStart, stopping: threading.Event) -> str:
        os.close(lock_node(Path(home.data)))  # the node gave it back
        assert register.start_id == "ours"
        self.tell(f"asked, stopping: {stopping.is_set()}")
        return "it runs on /joined"

    def _get(self, _: object, **__: object) -> None:
        raise RayActorError


@pytest.fixture
def ending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ending:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    return Ending(data, monkeypatch)


def test_a_node_without_its_coordinator_ends_its_actors_and_then_asks_who_has_it(
    ending: Ending,
) -> None:
    ending.node._keep_watch()
    assert ending.told == [
        f"lost: the node on {ending.node.data} ends: its coordinator has ended",
        "ended actors",
        "asked, stopping: False",
        "lost: it runs on /joined",
    ]
    assert ending.node.lost() == "it runs on /joined"
    with pytest.raises(NodeNotRunningError, match="it runs on /joined"):
        ending.node.connection()


def test_actors_that_do_not_end_are_told_and_not_ended_by_their_names(ending: Ending) -> None:
    ending.fails = ActorError("actors shard do not end; stop their Ray")
    ending.node._keep_watch()
    assert ending.told[1:-1] == ["ended actors"]
    os.close(lock_node(ending.node.data))
    assert (ending.node.lost() or "").endswith(
        "its coordinator has ended, and actors shard do not end; stop their Ray"
    )


def test_a_node_that_is_stopped_meanwhile_tells_the_same(ending: Ending) -> None:
    with pytest.raises(NodeNotRunningError, match="it runs on /joined"):
        ending.node.stop()
    assert ending.told[1:-1] == ["ended actors", "asked, stopping: True"]
    ending.node._keep_watch()
