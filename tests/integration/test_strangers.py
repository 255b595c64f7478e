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
from contextlib import closing, suppress
from pathlib import Path

import pytest
from support.harness.commands import rocketray, start_node, stop_node
from support.harness.patience import patience
from support.harness.process_tree import descendants
from support.harness.stranger import STRANGER_UID, as_stranger, needs_stranger, place_of_all

from rocketray.actors.cluster.node import Node
from rocketray.actors.cluster.node_options import NodeOptions
from rocketray.broker.backups.backup import back_up
from rocketray.broker.backups.restore import restore
from rocketray.broker.fetching.service_identity import kept_service
from rocketray.filters.subscription import Subscription
from rocketray.runtime.clock import system_clock_ms
from rocketray.runtime.files.node_lock import lock_node
from rocketray.runtime.files.paths import (
    fetch_service_file,
    node_file,
    runtime_directory,
    runtime_link,
    shard_directory,
    token_file,
)
from rocketray.runtime.files.runtime_lock import RuntimeLock, remove_runtime
from rocketray.runtime.machine import user_name
from rocketray.runtime.ray_process.ray_runtime import ray
from rocketray.runtime.register.file_register import FileRegister
from rocketray.store.files.file_system import SYSTEM_FILES
from rocketray.store.recovery.scrub_progress import ScrubProgress, write_progress

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240), needs_stranger]

LISTEN = "0A"  # in /proc/net/tcp
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
CREATE = """
flags = os.O_RDWR | os.O_CREAT
print(json.dumps([attempt(os.open, path + "/strange", flags) for path in sys.argv[1:]]))
"""
FETCH = """
flight, told = pyarrow.flight, []
client = flight.FlightClient(sys.argv[1], generic_options=[("grpc.enable_http_proxy", 0)])
for line in sys.stdin:
    headers = [(b"authorization", f"Bearer {line.strip()}".encode())]
    options = flight.FlightCallOptions(timeout=60, headers=headers)
    told.append(attempt(lambda: [*client.do_action(flight.Action("none", b""), options)]))
print(json.dumps(told))
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
answers, to = {}, urllib.request.build_opener(urllib.request.ProxyHandler({}))
for port in sys.argv[1:]:
    for path in ("get_or_create_runtime_env", "delete_runtime_env_if_possible"):
        request = urllib.request.Request(f"http://127.0.0.1:{port}/{path}", b"", method="POST")
        try:
            answers[f"{port}/{path}"] = to.open(request, timeout=60).status
        except urllib.error.HTTPError as error:
            answers[f"{port}/{path}"] = error.code
        except Exception as error:
            answers[f"{port}/{path}"] = type(error).__name__
print(json.dumps(answers))
"""


KINDS = {
    *("node.json", "node.lock", "directory.json", "ray_token"),
    *("config/topics.json", "config/groups.json", "config/filterRules.json"),
    *(f"shards/Trade/0/{name}" for name in ("store.json", "store.json.bak", "control", "lock")),
    *(f"shards/Trade/0/{name}" for name in ("checkpoint", "scrub.json", "abort")),
    f"shards/Trade/0/commitlog/{0:020d}",
}
"""Files of a node that runs."""


def listening_ports(pid: int) -> set[tuple[str, int]]:
    """The addresses and ports on which *pid* and the processes that it started listen."""
    sockets = set()
    for each in (pid, *descendants(pid)):
        for link in Path(f"/proc/{each}/fd").glob("*"):
            with suppress(OSError):
                if (target := str(link.readlink())).startswith("socket:["):
                    sockets.add(target[8:-1])
    found = set()
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        path = Path("/proc/net", table)
        for line in path.read_text().splitlines()[1:] if path.exists() else ():  # IPv6 may be off
            fields = line.split()
            if fields[3] == LISTEN and fields[9] in sockets:
                address, _, port = fields[1].partition(":")
                words = bytes.fromhex(address)
                packed = b"".join(words[at : at + 4][::-1] for at in range(0, len(words), 4))
                found.add((socket.inet_ntop(family, packed), int(port, 16)))
    return found


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    before = os.umask(0o022)
    try:
        with place_of_all() as place:
            data = place / "data"
            data.mkdir(mode=0o755)
            options = NodeOptions(num_cpus=1, predicate_time_limit_ms=900)
            with Node(data, options) as node, node.connection() as connection:
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
    below = session, session / "logs", session / "runtime_resources", session.parent
    assert as_stranger(LIST, *below) == ["PermissionError"] * len(below)


def test_no_http_port_of_ray_does_anything_for_a_stranger(node: Node) -> None:
    assert node.data
    session = Path(ray._private.worker._global_node.get_session_dir_path())
    ports = {path.read_text().strip() for path in session.glob("runtime_env_agent_port_*")}
    assert ports
    answers = as_stranger(POST, *ports, imports="urllib.request, urllib.error, encodings.idna")
    assert set(answers.values()) <= {401, 403}, answers


@pytest.mark.proves("documentation", "The table of access by other users")
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


def test_every_kind_of_file_of_a_node_is_tried(node: Node) -> None:
    """A member, a broadcast, a table of filters and damage leave theirs: none can be changed."""
    everything = Subscription.sql("TRUE")
    with node.connection() as connection:
        with (
            connection.consumer("Audit", "Trade", everything) as member,
            connection.consumer(
                "All", "Trade", everything, client_id="one", broadcast=True
            ) as other,
        ):
            for each in (member, other):
                for batch in each.poll(5.0):
                    each.commit(batch.topic, batch.queue_id, batch.next_queue_offset)
        connection.groups.prepare_change("Audit", "Trade", Subscription.tags("pay"))
    shard = shard_directory(node.data, "Trade", 0)
    write_progress(SYSTEM_FILES, shard, ScrubProgress())
    stored = [path for path in node.data.rglob("*") if path.is_file()]
    names = {path.relative_to(node.data).as_posix() for path in stored}
    assert names >= KINDS, KINDS - names
    assert any(name.startswith("config/groupJournal/") for name in names)
    assert any(name.startswith("broadcast/") for name in names)
    assert as_stranger(WRITE, *stored) == ["PermissionError"] * len(stored)
    directories = [path for path in (node.data, *node.data.rglob("*")) if path.is_dir()]
    assert as_stranger(CREATE, *directories) == ["PermissionError"] * len(directories)


def test_the_fetch_service_answers_those_who_have_its_token_and_nobody_else(node: Node) -> None:
    with node.connection() as connection:
        connection.ranges.look([("Trade", 0)])
    service = kept_service(node.data)
    assert service is not None
    assert as_stranger(READ, fetch_service_file(node.data)) == ["PermissionError"]
    address = f"grpc://{service.host}:{service.port}"
    tokens = f"\n{'f' * len(service.token)}\n{service.token}\n"
    *refused, known = as_stranger(FETCH, address, stdin=tokens, imports="pyarrow.flight")
    assert refused == ["FlightUnauthenticatedError"] * 2
    assert known not in (None, *refused), "it came in, and asked for a call that there is not"


def test_all_ports_of_a_node_are_on_loopback(node: Node) -> None:
    with node.connection() as connection:
        connection.ranges.look([("Trade", 0)])
    service = kept_service(node.data)
    found = listening_ports(os.getpid())
    assert service is not None
    assert service.port in {port for _, port in found}
    assert len(found) > 3
    assert {address for address, _ in found} <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


def test_backups_and_what_is_restored_from_them_are_out_of_reach(node: Node) -> None:
    with place_of_all() as place:
        back_up(node.data, place / "backup", clock_ms=system_clock_ms)
        restore(place / "backup", place / "restored", clock_ms=system_clock_ms)
        both = place / "backup", place / "restored"
        assert as_stranger(LIST, *both) == ["PermissionError"] * 2
        files = [path for each in both for path in each.rglob("*") if path.is_file()]
        assert as_stranger(READ, *files) == ["PermissionError"] * len(files)
        assert as_stranger(EXCHANGE, both[0]) == ["PermissionError"] * 3


def test_a_register_in_a_directory_can_be_read_if_that_can_and_changed_by_nobody_else() -> None:
    before = os.umask(0o022)
    try:
        with place_of_all() as place:
            FileRegister(place).create("topics/1", b"{}")
            assert as_stranger(READ, place / "topics/1") == [None]
            assert as_stranger(WRITE, place / "topics/1") == ["PermissionError"]
            assert as_stranger(CREATE, place, place / "topics") == ["PermissionError"] * 2
            place.chmod(0o700)
            assert as_stranger(READ, place / "topics/1") == ["PermissionError"]
    finally:
        os.umask(before)


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
        timeout=patience(120),
    )
    (line,) = (each for each in done.stderr.splitlines() if not each.startswith("still "))
    assert (done.returncode, done.stdout) == (1, "")
    assert line.startswith(f"rocketray: the Ray at {description['address']} {said}")
