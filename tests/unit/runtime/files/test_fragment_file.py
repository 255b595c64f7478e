"""Fragments: what is read of one is what was written, whichever byte of it changed."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path

import pytest

from rocketray.errors import CorruptRecordError, InvalidNameError, StoreFullError
from rocketray.runtime.files import fragment_file
from rocketray.runtime.files.fragment_file import (
    BatchName,
    Fragment,
    FragmentFile,
    FragmentWriter,
    batch_of,
    check_fragment,
    new_fragment,
    read_frame,
    read_frames,
)
from rocketray.store.retention import DiskUse

FRAMES = [("Out", 0, b"first"), ("Out", 1, b"second" * 3), ("rmq_sys_wheel_timer", 0, b"")]


def write(directory: Path) -> Fragment:
    name = new_fragment(BatchName("job", 7))
    writer = FragmentWriter(name, FragmentFile(directory, name))
    for topic, queue_id, content in FRAMES:
        writer.add(topic, queue_id, content, 2)
    return writer.finish()


def content_of(directory: Path, fragment: Fragment) -> list[tuple[str, int, bytes]]:
    frames = read_frames(directory, fragment)
    return [
        (frame.topic, frame.queue_id, read_frame(directory / fragment.name, frame))
        for frame in frames
    ]


def test_what_was_written_is_read(tmp_path: Path) -> None:
    fragment = write(tmp_path / "staged")
    assert content_of(tmp_path / "staged", fragment) == FRAMES
    assert (batch_of(fragment.name), fragment.messages) == (("job", 7), 6)
    assert (tmp_path / "staged" / fragment.name).stat().st_size == fragment.size
    assert (tmp_path / "staged").stat().st_mode & 0o777 == 0o700


def test_a_change_of_any_byte_is_noticed(tmp_path: Path) -> None:
    fragment = write(tmp_path)
    path = tmp_path / fragment.name
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x20]) + whole[at + 1 :])
        with pytest.raises(CorruptRecordError):
            content_of(tmp_path, fragment)
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        with pytest.raises(CorruptRecordError):
            content_of(tmp_path, fragment)


@pytest.mark.parametrize(
    "frames",
    [
        {},
        [["Out", 0, 0, 5, 1]],
        [["Out", 0, 1, 4, 1, 1]],
        [["Out", 0, 0, 6, 1, 1]],
        [["Out", 0, 0, 4, 1, 1]],
        [["Out", -1, 0, 5, 1, 1]],
        [["Out", 1024, 0, 5, 1, 1]],
        [["Out", 0.0, 0, 5, 1, 1]],
        [["../x", 0, 0, 5, 1, 1]],
        [["RMQ_SYS_TRANS_HALF_TOPIC", 0, 0, 5, 1, 1]],
        [[3, 0, 0, 5, 1, 1]],
    ],
)
def test_a_list_of_frames_that_cannot_be_is_refused(tmp_path: Path, frames: object) -> None:
    footer = json.dumps(frames).encode()
    content = b"first" + footer + struct.pack("<4sIQ", b"RRH1", zlib.crc32(footer), len(footer))
    fragment = Fragment(new_fragment(BatchName("job", 0)), len(content), 1)
    (tmp_path / fragment.name).write_bytes(content)
    with pytest.raises(CorruptRecordError, match="its footer: "):
        read_frames(tmp_path, fragment)


def test_a_fragment_that_is_not_finished_has_no_name_and_a_discarded_one_no_file(
    tmp_path: Path,
) -> None:
    name = new_fragment(BatchName("job", 0))
    writer = FragmentWriter(name, FragmentFile(tmp_path, name))
    writer.add("Out", 0, b"x", 1)
    (part,) = tmp_path.iterdir()
    assert part.name == f"{name}.part"
    assert batch_of(part.name) == ("job", 0), "so that it can be removed with its batch"
    writer.discard()
    assert not [*tmp_path.iterdir()]


def test_a_full_disk_takes_no_fragment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fragment_file, "disk_use", lambda _: DiskUse(used=99, free=1))
    name = new_fragment(BatchName("job", 0))
    with pytest.raises(StoreFullError, match="nothing more is staged"):
        FragmentFile(tmp_path, name)


@pytest.mark.parametrize(
    "name", ["", "x", "job.0.half", "a/b.0." + "0" * 32 + ".half", "j.0.x.half"]
)
def test_a_name_that_is_none_of_a_fragment_is_refused(name: str) -> None:
    assert batch_of(name) is None
    with pytest.raises(InvalidNameError):
        check_fragment(name)
    with pytest.raises(InvalidNameError):
        check_fragment(new_fragment(BatchName("job", 0)) + ".part")
