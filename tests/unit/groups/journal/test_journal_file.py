"""Journals on disk: what was saved is read again, and damage is cut without a guess."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

import pytest

from rocketray.actors.cluster.cluster_state import ClusterState
from rocketray.actors.cluster.groups_file import GroupsFile
from rocketray.broker.filtering.filter_rules import FilterRules
from rocketray.filters.subscription import Subscription
from rocketray.groups.journal import journal_file
from rocketray.groups.journal.group_journal import EntryKind, GroupJournals
from rocketray.groups.journal.journal_file import JournalFiles

ALL = Subscription.tags("*")


def written(directory: Path, moves: int = 3) -> GroupJournals:
    """The journal of a group that was moved some times, saved after each move."""
    files, journals = JournalFiles(directory), GroupJournals(lambda: 17)
    journals.is_read("g", "T", {0: 0}, ALL, "m1")
    files.save(journals)
    for number in range(moves):
        journals.note(EntryKind.MOVE, "g", "T", {0: (number, number + 1)}, who=f"move {number}")
        files.save(journals)
    return journals


def read(directory: Path) -> GroupJournals:
    journals = GroupJournals(lambda: 18)
    journals.load(JournalFiles(directory).load())
    return journals


def test_what_was_saved_is_read_again_and_grows(tmp_path: Path) -> None:
    before = written(tmp_path)
    after = read(tmp_path)
    assert after.entries("g") == before.entries("g")
    assert not after.changed
    after.note(EntryKind.MOVE, "g", "T", {0: (3, 9)}, who="another")
    JournalFiles(tmp_path).save(after)
    assert read(tmp_path).entries("g") == after.entries("g")
    after.note(EntryKind.GROUP_DELETED, "g", "", {})
    JournalFiles(tmp_path).save(after)
    assert [one.kind for one in read(tmp_path).entries("g")] == [EntryKind.GROUP_DELETED]


def test_every_cut_and_every_bit_is_noticed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = written(tmp_path / "whole").entries("g")
    content = (tmp_path / "whole" / "g.journal").read_bytes()
    ends = [place + 1 for place, byte in enumerate(content) if byte == ord("\n")]
    path = tmp_path / "other" / "g.journal"
    path.parent.mkdir()
    for place in sorted({*range(0, len(content), 7), *ends[:-1], *(end - 1 for end in ends)}):
        for is_cut in (True, False):
            damaged = content[:place] if is_cut else _flipped(content, place)
            path.write_bytes(damaged)
            caplog.clear()
            journals = read(path.parent)
            kept = sum(end <= place for end in ends) - 1
            assert journals.entries("g") == whole[: max(kept, 0)], (place, is_cut)
            is_whole_lines = is_cut and place in ends
            assert bool(caplog.records) != is_whole_lines, (place, is_cut)
            journals.agree("g", "T", {0: 3}, lambda _: ((0, ALL),))
            last = journals.entries("g")[-1:]
            is_end = not is_cut and place == len(content) - 1  # it looks as if it was unfinished
            if kept <= 0 or not (is_cut or is_end):
                assert [entry.kind for entry in last] == [EntryKind.STATE], "no guess"
            JournalFiles(path.parent).save(journals)
            assert read(path.parent).entries("g") == journals.entries("g")


def _flipped(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :]


def test_a_file_of_a_later_version_is_put_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    line = journal_file._line(b'{"journal":"group","version":2}')
    (tmp_path / "g.journal").write_bytes(line)
    assert read(tmp_path).entries("g") == ()
    assert (tmp_path / "g.journal.unreadable").read_bytes() == line
    assert "explanations cover only the time from now on" in caplog.text


def test_a_file_that_is_too_large_is_put_aside_for_that_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path)
    monkeypatch.setattr(journal_file, "_FILE_MAX_BYTES", 64)
    assert read(tmp_path).entries("g") == ()
    assert "g.journal is larger than 64 bytes; it is kept as g.journal.unreadable" in caplog.text


def test_an_endless_line_is_not_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    written(tmp_path)
    with (tmp_path / "g.journal").open("ab") as file:
        file.write(b"x" * (1 << 20))
    with caplog.at_level(logging.WARNING):
        assert len(read(tmp_path).entries("g")) == 4
    assert "truncated after entry 4" in caplog.text


def test_what_a_dead_writer_left_is_removed(tmp_path: Path) -> None:
    journals = written(tmp_path)
    (tmp_path / "g.journal.99999999999999999.tmp").write_bytes(b"half")  # no process has that id
    assert read(tmp_path).entries("g") == journals.entries("g")
    assert [path.name for path in tmp_path.iterdir()] == ["g.journal"]


def test_a_failed_write_is_repeated_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journals, files = written(tmp_path), JournalFiles(tmp_path)
    journals.note(EntryKind.MOVE, "g", "T", {0: (3, 9)}, who="another")
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", _fails)
        with pytest.raises(OSError, match="No space"):
            files.save(journals)
    assert journals.changed
    files.save(journals)
    assert read(tmp_path).entries("g") == journals.entries("g")


def _fails(_: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.proves("groups", "A journal entry is on disk before its change")
def test_the_journal_is_on_disk_before_what_it_tells_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = ClusterState(tmp_path, FilterRules(), lambda: 17)
    state.topics.create("T", 1)
    state.registry.subscriptions.load(
        {"subscriptionGroupTable": {"g": {"subscriptions": {"T": ALL.to_json()}}}}
    )
    monkeypatch.setattr(GroupsFile, "write", _dies)
    with pytest.raises(KeyboardInterrupt):
        state.administration.move_offsets("g", "T", {0: 7}, "rocketray groups skip")
    [entry] = read(tmp_path / "config" / "groupJournal").entries("g")
    assert (entry.kind, entry.queues, entry.who) == (
        EntryKind.MOVE, {0: (-1, 7)}, "rocketray groups skip",
    )  # fmt: skip


def _dies(*_: object, **__: object) -> None:
    raise KeyboardInterrupt
