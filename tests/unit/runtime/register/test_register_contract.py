"""The same promises of every register: files, an object store, etcd."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.nodes.register_servers import BUCKET, etcd_server, s3_server, s3_variables

from rocketray.errors import StoreError
from rocketray.runtime.register.documents import RegisterDocuments
from rocketray.runtime.register.register import Register, check_create_only, open_register
from rocketray.runtime.register.register_keys import KEY_MAX_LENGTH, VALUE_MAX_BYTES

THREADS = 8
Opened = Callable[[], Register]


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with s3_server() as url:
        yield url


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with etcd_server(tmp_path_factory.mktemp("etcd") / "data") as server:
        yield server


@pytest.fixture(params=["file", "s3", "etcd"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty register."""
    if request.param == "file":
        directory = tmp_path / "a register"
        directory.mkdir()
        return directory.as_uri()
    server = request.getfixturevalue(request.param)
    if request.param == "etcd":
        return f"etcd://{server}/{tmp_path.name}"
    for name, value in s3_variables(server).items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/{tmp_path.name}"


@pytest.fixture
def opened(url: str) -> Opened:
    """Open one more client of the same register."""
    return lambda: open_register(url)


@pytest.fixture
def register(opened: Opened) -> Register:
    return opened()


def test_a_key_is_created_once_and_removed(register: Register, opened: Opened) -> None:
    check_create_only(register)
    assert register.names("") == []
    other = opened()
    assert register.read("a/b") is None
    assert register.create("a/b", b"first")
    assert not other.create("a/b", b"second")
    assert not register.create("a/b", b"first")
    assert register.read("a/b") == other.read("a/b") == b"first"
    other.remove("a/b")
    assert register.read("a/b") is None
    other.remove("a/b")
    assert register.create("a/b", b"third")
    assert other.read("a/b") == b"third"


def test_names_are_those_below_a_folder_in_order(register: Register) -> None:
    keys = ["topics/2", "topics/10", "topics/1", "topics2/1", "disks/x/y.z", "top"]
    for key in keys:
        assert register.create(key, b"")
    assert register.names("") == sorted(keys)
    assert register.names("topics") == ["topics/1", "topics/10", "topics/2"]
    assert register.names("disks") == register.names("disks/x") == ["disks/x/y.z"]
    assert register.names("none") == register.names("top") == []


@pytest.mark.proves(
    "durability",
    "A key of a register is created once, by one of many, in a directory, in S3 (moto) and in etcd",
)
def test_one_of_many_creates_a_key(opened: Opened) -> None:
    registers = [opened() for _ in range(THREADS)]
    with ThreadPoolExecutor(THREADS) as threads:
        for key in ("a/1", "a/2", "b/c/3"):
            writers = [f"{key} {number}".encode() for number in range(THREADS)]
            won = list(
                threads.map(lambda one, value, k=key: one.create(k, value), registers, writers)
            )
            assert sum(won) == 1
            assert registers[0].read(key) == writers[won.index(True)]


def test_values_of_any_bytes_up_to_the_limit(register: Register, rng: Any) -> None:
    for number, value in enumerate((b"", b"\0", rng.randbytes(VALUE_MAX_BYTES))):
        assert register.create(f"v/{number}", value)
        assert register.read(f"v/{number}") == value
    with pytest.raises(StoreError, match="more than the 1048576"):
        register.create("v/large", bytes(VALUE_MAX_BYTES + 1))
    longest = "k" * KEY_MAX_LENGTH
    assert register.create(longest, b"x")
    assert longest in register.names("")


@pytest.mark.parametrize(
    "key", ["", "/", "/a", "a/", "a//b", "..", "a/../b", "a/.b", "a b", "ä", "a\n", "a" * 201]
)
def test_a_wrong_key_is_refused(key: str, register: Register) -> None:
    for call in (
        lambda: register.create(key, b""),
        lambda: register.read(key),
        lambda: register.remove(key),
    ):
        with pytest.raises(StoreError, match="invalid key"):
            call()
    if key:
        with pytest.raises(StoreError, match="invalid key"):
            register.names(key)


def test_messages_name_the_url(register: Register, url: str) -> None:
    assert register.address == url


def test_coordinators_take_over_from_each_other(opened: Opened) -> None:
    count = 0
    for _ in range(3):
        documents = RegisterDocuments(opened())
        documents.take_over(["disks", "topics"])
        found = documents.load("topics", lambda value: int(value["count"]))
        assert found == (count or None)
        for _ in range(3):
            count += 1
            documents.save("topics", {"count": count})
    assert [len(opened().names(name)) for name in ("disks", "topics")] == [3, 4]
