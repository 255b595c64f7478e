"""Documents in a register: what one coordinator saves, and what it refuses to read or to write."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from support.nodes.dict_register import DictRegister

from rocketray.base.file_form import UnknownVersionError
from rocketray.errors import (
    ConfigError,
    RegisterUnavailableError,
    StoreError,
    StreamError,
    SupersededError,
)
from rocketray.runtime.files.home import Home
from rocketray.runtime.register import documents as module
from rocketray.runtime.register.documents import DocumentWriter, RegisterDocuments

HERE = Home("/first", "00000000-0000-0000-0000-000000000001", "here")
THERE = Home("/joined", "00000000-0000-0000-0000-000000000002", "there", is_joined=True)
FIRST = "topics/00000000000000000001"


@pytest.fixture
def register() -> DictRegister:
    return DictRegister()


def coordinator(register: DictRegister, *names: str) -> RegisterDocuments:
    documents = RegisterDocuments(register)
    documents.take_over(names or ("topics",))
    return documents


def same(value: dict[str, Any]) -> dict[str, Any]:
    return value


def stored(**document: Any) -> bytes:
    return zlib.compress(json.dumps(document).encode())


def test_a_saved_document_is_loaded_by_a_reader_and_by_the_next_coordinator(
    register: DictRegister,
) -> None:
    documents = coordinator(register)
    assert documents.load("topics", same) is None
    for value in ({"a": 1}, {"a": {"5": ["ü"]}}):
        documents.save("topics", value)
        assert documents.load("topics", same) == value
        assert RegisterDocuments(register).load("topics", same) == value
    assert coordinator(register).load("topics", same) == value


def test_a_number_as_a_name_is_text_as_in_files(register: DictRegister) -> None:
    documents = coordinator(register)
    documents.save("topics", {5: 1})
    assert documents.load("topics", same) == {"5": 1}


def test_a_document_that_never_existed_is_sealed(register: DictRegister) -> None:
    coordinator(register)
    assert register.keys.keys() == {FIRST}
    assert RegisterDocuments(register).load("topics", same) is None
    assert RegisterDocuments(register).load("disks", same) is None


def test_a_removed_document_keeps_its_number(register: DictRegister) -> None:
    documents = coordinator(register)
    documents.save("topics", {"a": 1})
    documents.remove("topics")
    assert documents.load("topics", same) is None
    assert max(register.keys) == "topics/00000000000000000003"
    documents.save("topics", {"a": 2})
    assert documents.load("topics", same) == {"a": 2}


def test_the_last_versions_stay(register: DictRegister) -> None:
    documents = coordinator(register)
    for count in range(20):
        documents.save("topics", {"a": count})
    assert sorted(register.keys) == [f"topics/{number:020}" for number in (18, 19, 20, 21)]


def test_a_coordinator_that_was_superseded_saves_nothing_more(register: DictRegister) -> None:
    old = coordinator(register, "disks", "topics")
    old.save("topics", {"a": 1})
    new = coordinator(register, "disks", "topics")
    for name in ("topics", "disks", "topics"):
        with pytest.raises(SupersededError, match="another coordinator"):
            old.save(name, {"a": 2})
    with pytest.raises(SupersededError):
        old.remove("topics")
    with pytest.raises(SupersededError):
        old.load("topics", same)
    with pytest.raises(SupersededError):
        old.take_over(["topics"])
    assert new.load("topics", same) == {"a": 1}
    new.save("topics", {"a": 3})


@pytest.mark.proves(
    "durability",
    "The node of the first disk that has lost its coordinator ends its own actors and no other "
    "node's, and learns from the register who has the cluster, whether that answers yet or not",
)
@pytest.mark.parametrize("finds_out", ["load", "save", "is started again"])
def test_who_has_taken_over_is_known_from_his_seal(register: DictRegister, finds_out: str) -> None:
    """Without a call to the coordinator, which need not answer yet; and it stays known."""
    old = RegisterDocuments(register, "old", home=HERE)
    old.take_over(["disks", "topics"])
    again = RegisterDocuments(register, "old", home=HERE)
    RegisterDocuments(register, "new", home=THERE).take_over(["disks", "topics"])
    calls: dict[str, Callable[[], object]] = {
        "load": lambda: old.load("topics", same),
        "save": lambda: old.save("topics", {}),
        "is started again": lambda: again.take_over(["topics"], is_again=True),
    }
    with pytest.raises(SupersededError, match="it runs on /joined of there and saved") as caught:
        calls[finds_out]()
    stopped = again if finds_out == "is started again" else old
    with pytest.raises(SupersededError) as later:
        stopped.save("disks", {})
    assert later.value.args == caught.value.args
    assert caught.value.taker == "/joined of there"


def test_a_reader_is_told_who_wrote_a_document(register: DictRegister) -> None:
    reader = RegisterDocuments(register)
    assert reader.writer("topics") is None
    one = RegisterDocuments(register, "one", home=HERE)
    one.take_over(["topics"])
    assert reader.writer("topics") == DocumentWriter("one", HERE)
    two = RegisterDocuments(register, "two", home=THERE)
    two.take_over(["topics"])
    for count in range(10):
        assert reader.writer("topics") == DocumentWriter("two", THERE)
        two.save("topics", {"a": count})


@pytest.mark.parametrize(
    "home",
    [{}, {"home": None}, {"home": "/joined"}, {"home": []}, {"home": {"data": "/joined"}}],
)
def test_a_version_that_does_not_tell_its_home_is_read(
    register: DictRegister, home: dict[str, Any]
) -> None:
    """The first releases wrote none."""
    register.keys[FIRST] = stored(version=1, writer="one/1", value={"a": 1}, **home)
    reader = RegisterDocuments(register)
    assert reader.load("topics", same) == {"a": 1}
    assert reader.writer("topics") == DocumentWriter("one", None)
    again = RegisterDocuments(register, "two")
    with pytest.raises(SupersededError) as caught:
        again.take_over(["topics"], is_again=True)
    assert caught.value.taker == ""
    assert str(caught.value).startswith("another coordinator has taken over: it saved 'topics' in")


def test_a_superseded_coordinator_is_found_also_where_its_number_was_removed(
    register: DictRegister,
) -> None:
    old = coordinator(register)
    new = coordinator(register)
    for count in range(10):
        new.save("topics", {"a": count})
    assert "topics/00000000000000000002" not in register.keys
    with pytest.raises(SupersededError):
        old.save("topics", {"a": "old"})
    assert RegisterDocuments(register).load("topics", same) == {"a": 9}
    new.save("topics", {"a": 10})
    assert "topics/00000000000000000002" not in register.keys, "what the old one left is removed"


def test_a_superseded_coordinator_reads_the_new_ones_document_as_the_end(
    register: DictRegister,
) -> None:
    old = coordinator(register)
    coordinator(register).save("topics", {"a": 1})
    with pytest.raises(SupersededError):
        old.load("topics", same)
    calls = len(register.calls)
    with pytest.raises(SupersededError):
        old.save("topics", {})
    assert len(register.calls) == calls


def test_a_save_without_an_answer_is_found_out_by_the_next_one(
    register: DictRegister, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = coordinator(register)
    create = register.create

    def unanswered(key: str, value: bytes) -> bool:
        create(key, value)
        raise RegisterUnavailableError("memory://test", "no answer")

    monkeypatch.setattr(register, "create", unanswered)
    for value in ({"a": 1}, {"a": 2}, {"a": 2}):
        with pytest.raises(RegisterUnavailableError):
            documents.save("topics", value)
        assert RegisterDocuments(register).load("topics", same) == {"a": 1}
    monkeypatch.undo()
    documents.save("topics", {"a": 3})
    assert RegisterDocuments(register).load("topics", same) == {"a": 3}
    assert max(register.keys) == "topics/00000000000000000003"


def test_a_store_that_stops_delays_a_take_over(register: DictRegister) -> None:
    documents = RegisterDocuments(register)
    register.is_stopped = True
    with pytest.raises(RegisterUnavailableError, match="the test stopped it"):
        documents.take_over(["topics"])
    register.is_stopped = False
    documents.take_over(["topics"])
    documents.save("topics", {"a": 1})


def test_what_cannot_be_removed_after_a_save_is_removed_later(
    register: DictRegister, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = coordinator(register)

    def refuse(key: str) -> None:
        raise RegisterUnavailableError("memory://test", f"{key} stays")

    monkeypatch.setattr(register, "remove", refuse)
    for count in range(9):
        documents.save("topics", {"a": count})
    assert len(register.keys) == 10
    monkeypatch.undo()
    documents.save("topics", {"a": 9})
    assert len(register.keys) == 4


def test_a_reader_whose_version_is_removed_lists_once_more(
    register: DictRegister, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = coordinator(register)
    read = register.read

    def late(key: str) -> bytes | None:
        monkeypatch.undo()
        for count in range(10):
            documents.save("topics", {"a": count})
        return read(key)

    monkeypatch.setattr(register, "read", late)
    assert RegisterDocuments(register).load("topics", same) == {"a": 9}


def test_a_document_that_changes_all_the_time_is_an_error(
    register: DictRegister, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator(register)
    monkeypatch.setattr(register, "read", lambda key: None)
    with pytest.raises(RegisterUnavailableError, match="changed 50 times"):
        RegisterDocuments(register).load("topics", same)


def test_a_store_that_overwrites_is_refused(
    register: DictRegister, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overwrite(key: str, value: bytes) -> bool:
        register.keys[key] = value
        return True

    monkeypatch.setattr(register, "create", overwrite)
    with pytest.raises(ConfigError, match="overwrites a key"):
        RegisterDocuments(register).take_over(["topics"])
    monkeypatch.setattr(register, "create", lambda key, value: False)
    with pytest.raises(RegisterUnavailableError, match="does not return a value"):
        RegisterDocuments(register).take_over(["topics"])


@pytest.mark.parametrize(
    ("version", "expected"),
    [(2, f"{FIRST}: its version is 2"), (0, f"{FIRST}: damaged"), ("1", f"{FIRST}: damaged")],
)
def test_other_versions_are_refused_and_stay(
    register: DictRegister, version: object, expected: str
) -> None:
    register.keys[FIRST] = stored(version=version, writer="x", value={})
    documents = RegisterDocuments(register)
    with pytest.raises(StoreError, match=expected):
        documents.load("topics", same)
    with pytest.raises(StoreError, match=expected):
        documents.take_over(["topics"])
    assert register.keys.keys() == {FIRST}


def test_an_unknown_version_of_the_value_names_the_place(register: DictRegister) -> None:
    def parse(value: dict[str, Any]) -> dict[str, Any]:
        raise UnknownVersionError(value["version"], 1)

    documents = coordinator(register)
    documents.save("topics", {"version": 7})
    with pytest.raises(UnknownVersionError, match=r"memory://test/topics/0+2: its version is 7"):
        documents.load("topics", parse)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        zlib.compress(b"{"),
        zlib.compress(b"[]"),
        stored(writer="x", value={}),
        stored(version=1, value={}),
        stored(version=1, writer="x"),
        stored(version=1, writer="x", value={})[:-1],
        stored(version=1, writer="x", value=[1]),
        stored(version=1, writer="x", value={"b": 1}),
    ],
    ids=lambda content: content[:12].hex(),
)
def test_a_damaged_document_says_where_it_is(register: DictRegister, content: bytes) -> None:
    register.keys[FIRST] = content
    with pytest.raises(StoreError, match=rf"memory://test/{FIRST}: damaged .*; end all"):
        RegisterDocuments(register).load("topics", lambda value: value["a"])


def test_a_version_that_expands_beyond_the_limit_is_damaged(
    register: DictRegister, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = coordinator(register)
    documents.save("topics", {"a": "x" * 2000})
    monkeypatch.setattr(module, "JSON_MAX_BYTES", 1000)
    with pytest.raises(StoreError, match="too large"):
        documents.load("topics", same)
    with pytest.raises(StoreError, match="more than the 1000"):
        documents.save("topics", {"a": "x" * 2000})


def test_a_value_that_no_store_takes_is_refused_before_it_is_sent(
    register: DictRegister, rng: Any
) -> None:
    documents = coordinator(register)
    calls = len(register.calls)
    with pytest.raises(StoreError, match="more than the 1048576"):
        documents.save("topics", {"a": rng.randbytes(1_200_000).hex()})
    assert len(register.calls) == calls
    documents.save("topics", {"a": "x" * 5_000_000})


def test_a_stray_key_is_no_version(register: DictRegister) -> None:
    register.keys["topics/readme"] = register.keys["topics/9"] = b""
    documents = coordinator(register)
    documents.save("topics", {"a": 1})
    assert documents.load("topics", same) == {"a": 1}


def test_a_save_of_what_was_not_taken_over_is_a_mistake(register: DictRegister) -> None:
    with pytest.raises(KeyError):
        RegisterDocuments(register).save("topics", {})


def test_a_value_that_is_no_json_is_refused(register: DictRegister) -> None:
    with pytest.raises((TypeError, StreamError)):
        coordinator(register).save("topics", {"a": object()})
