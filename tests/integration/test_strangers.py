"""What another user of the machine can do to a node that runs: nothing.

The node's directory is the worst that is allowed: one that everybody may read was there before. So
a stranger reads messages and node.json, which the start warns of, and can change nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.commands import rocketray, start_node, stop_node
from support.stranger import STRANGER_UID, as_stranger, needs_stranger, place_of_all

from rocketray.actors.cluster.node import Node
from rocketray.actors.cluster.node_options import NodeOptions
from rocketray.actors.files.node_lock import lock_node
from rocketray.actors.files.paths import node_file, runtime_directory, runtime_link, token_file
from rocketray.actors.files.runtime_lock import RuntimeLock, remove_runtime
from rocketray.actors.ray_process.ray_runtime import ray
from rocketray.actors.runtime.machine import user_name

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240), needs_stranger]

LIST = "print(json.dumps([attempt(os.listdir, path) for path in sys.argv[1:]]))"
WRITE = """
flags = os.O_RDWR
print(json.dumps([attempt(os.open, path, flags) for path in sys.argv[1:]]))
"""
SQUAT = """
os.mkdir(sys.argv[1])
os.chmod(sys.argv[1], 0o777)
os.mkfifo(sys.argv[1] + "/lock")
print(json.dumps(os.stat(sys.argv[1]).st_uid))
"""
EXCHANGE = """
renamed = attempt(os.rename, sys.argv[1], sys.argv[1] + "-gone")
removed = attempt(os.rmdir, sys.argv[1])
print(json.dumps([renamed, removed, attempt(os.listdir, sys.argv[1])]))
"""
READ = "print(json.dumps([attempt(open, path) for path in sys.argv[1:]]))"
CALL = """
from ray._raylet import AuthenticationTokenLoader, Config, GcsClient
address, token = sys.argv[1], sys.stdin.read()
if token:
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()
try:
    print(json.dumps(len(GcsClient(address=address).internal_kv_keys(b"", None, 10))))
except Exception as error:
    print(json.dumps(f"{type(error).__name__}: {error}"))
"""
CONNECT = """
print(json.dumps([attempt(socket.socket(socket.AF_UNIX).connect, path) for path in sys.argv[1:]]))
"""
POST = """
answers = {}
for port in sys.argv[1:]:
    for path in ("get_or_create_runtime_env", "delete_runtime_env_if_possible"):
        request = urllib.request.Request(f"http://127.0.0.1:{port}/{path}", b"", method="POST")
        try:
            answers[f"{port}/{path}"] = urllib.request.urlopen(request, timeout=5).status
        except urllib.error.HTTPError as error:
            answers[f"{port}/{path}"] = error.code
        except Exception as error:
            answers[f"{port}/{path}"] = type(error).__name__
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    before = os.umask(0o022)
    try:
        with place_of_all() as place:
            data = place / "data"
            data.mkdir(mode=0o755)
            with Node(data, NodeOptions(num_cpus=1)) as node, node.connection() as connection:
                connection.topics.ensure("Trade", 1)
                with connection.producer() as producer:
                    producer.send("Trade", b"secret")
                yield node
    finally:
        os.umask(before)


def test_the_token_is_the_node_s_own_and_only_its_user_can_read_it(node: Node) -> None:
    token = token_file(node.data)
    assert node.description()["tokenPath"] == str(token)
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    assert token.read_text() not in node_file(node.data).read_text()
    assert as_stranger(READ, token, node_file(node.data)) == ["PermissionError", None]


def test_ray_answers_those_who_have_the_token_and_nobody_else(node: Node) -> None:
    address, token = node.description()["address"], token_file(node.data).read_text()
    for wrong in ("", "f" * len(token)):
        answer = as_stranger(CALL, address, stdin=wrong, imports="ray")
        assert "InvalidAuthToken" in str(answer), answer
    assert as_stranger(CALL, address, stdin=token, imports="ray") > 0


def test_without_the_token_everybody_may_call_ray_and_status_says_so(
    node: Node, tmp_path: Path
) -> None:
    with node.connection() as connection:
        assert not any(line.startswith("Ray: ") for line in connection.problems())
    data = tmp_path / "data"
    environ = {**os.environ, "RAY_AUTH_MODE": "disabled"}
    open_to_all = start_node(data, tmp_path / "log", environ=environ)
    try:
        address = json.loads(node_file(data).read_text())["address"]
        assert as_stranger(CALL, address, imports="ray") > 0
        assert f"can run code as {user_name()}" in (tmp_path / "log").read_text()
        told = "Ray: it asks for no token, so any program that can reach its ports can run code"
        assert told in rocketray("status", "--data", data).stdout
        stop_node(open_to_all)
    finally:
        open_to_all.kill()
        open_to_all.wait()


def test_the_sockets_and_logs_of_ray_s_processes_are_out_of_reach(node: Node) -> None:
    assert node.data
    session = Path(ray._private.worker._global_node.get_session_dir_path())
    sockets = [*(session / "sockets").iterdir()]
    assert len(sockets) >= 2
    assert as_stranger(CONNECT, *sockets, imports="socket") == ["PermissionError"] * len(sockets)
    with closing(socket.socket(socket.AF_UNIX)) as own:
        own.connect(str(session / "sockets" / "raylet"))
    assert as_stranger(LIST, session, session / "logs") == ["PermissionError"] * 2


def test_no_http_port_of_ray_does_anything_for_a_stranger(node: Node) -> None:
    assert node.data
    session = Path(ray._private.worker._global_node.get_session_dir_path())
    ports = {path.read_text().strip() for path in session.glob("runtime_env_agent_port_*")}
    assert ports
    answers = as_stranger(POST, *ports, imports="urllib.request, urllib.error, encodings.idna")
    assert set(answers.values()) <= {401, 403}, answers


def test_rings_doorbells_and_files_of_messages_cannot_be_changed(node: Node) -> None:
    with node.connection() as connection, connection.producer() as producer:
        producer.send("Trade", b"through a ring")
        memory = [path for path in runtime_directory(node.data).rglob("*") if path.is_file()]
        assert len(memory) >= 3
        stored = [path for path in node.data.rglob("*") if path.is_file()]
        refused = ["PermissionError"]
        assert as_stranger(WRITE, *memory, *stored) == refused * len(memory + stored)
        assert as_stranger(LIST, runtime_directory(node.data)) == refused
        assert as_stranger(EXCHANGE, runtime_directory(node.data)) == refused * 3


def test_a_directory_that_a_node_made_opens_nothing_to_a_stranger() -> None:
    with place_of_all() as place:
        data = place / "data"
        os.close(lock_node(data, NodeOptions().data_mode))
        (data / "file").write_text("secret")
        assert as_stranger(LIST, data) == ["PermissionError"]
        assert as_stranger(READ, data / "file") == ["PermissionError"]
        assert as_stranger(WRITE, data / "node.lock") == ["PermissionError"]


def test_a_directory_that_its_group_may_read_can_be_changed_by_nobody_else() -> None:
    with place_of_all() as place:
        data = place / "data"
        os.close(lock_node(data, 0o750))
        (data / "file").write_text("a message")
        os.chown(data, -1, STRANGER_UID)  # the number of the stranger's group, too
        assert as_stranger(LIST, data) == [None]
        assert as_stranger(READ, data / "file", data / "node.lock") == [None, "PermissionError"]
        assert as_stranger(WRITE, data / "file") == ["PermissionError"]
        assert as_stranger(EXCHANGE, data / "file")[:2] == ["PermissionError"] * 2


def test_shared_memory_that_a_stranger_made_first_is_not_used() -> None:
    with place_of_all() as place:
        usual = runtime_directory(place)
        assert as_stranger(SQUAT, usual) == STRANGER_UID
        try:
            lock = RuntimeLock(place)
            used = runtime_directory(place)
            assert used != usual
            assert used == runtime_link(place).readlink()
            assert as_stranger(EXCHANGE, used) == ["PermissionError"] * 3
            lock.close()
            remove_runtime(place)
            assert not used.exists()
            assert [path.name for path in usual.iterdir()] == ["lock"]
        finally:
            shutil.rmtree(usual)


@pytest.mark.parametrize(
    ("mode", "has_token", "said"),
    [("token", True, "refuses the token in "), ("disabled", False, "asks for a token that ")],
)
def test_a_command_without_the_right_token_is_told_so_in_one_line(
    node: Node, tmp_path: Path, mode: str, has_token: bool, said: str
) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("f" * 64)
    wrong.chmod(0o600)
    description = {**node.description(), "authMode": mode}
    description["tokenPath"] = str(wrong) if has_token else None
    (tmp_path / "node.json").write_text(json.dumps(description))
    done = subprocess.run(
        [sys.executable, "-m", "rocketray", "topics", "list", "--data", tmp_path],
        env={**os.environ, "RAY_AUTH_MODE": mode},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    (line,) = (each for each in done.stderr.splitlines() if not each.startswith("still "))
    assert (done.returncode, done.stdout) == (1, "")
    assert line.startswith(f"rocketray: the Ray at {description['address']} {said}")
