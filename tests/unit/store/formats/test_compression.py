from __future__ import annotations

import random
import tracemalloc
import zlib
from typing import Any, get_args

import pyarrow as pa
import pytest

from rocketray.errors import ConfigError, CorruptRecordError, MessageTooLargeError
from rocketray.store.formats import compression
from rocketray.store.formats.compression import Compression, CompressionKind, inflate
from rocketray.store.formats.sys_flag import sys_flag_names

TEXT = b"many words, many words, many more words"
KINDS: tuple[CompressionKind, ...] = get_args(CompressionKind)
NOISE = random.Random(7).randbytes(5 << 20)
# Written by the lz4 and zstd libraries, not by us: small blocks, then all checksums and sizes.
LZ4 = bytes.fromhex(
    "04224d186040821a000000cd6d616e7920776f7264732c200c00a06d6f726520776f72647300000000"
)
LZ4_CHECKED = bytes.fromhex(
    "04224d187c4027000000000000001b1a000000cd6d616e7920776f7264732c200c00a06d6f726520776f726473"
    "bb03c528000000008a66296d"
)
ZSTD = bytes.fromhex(
    "28b52ffd0400e50000b06d616e7920776f7264732c206d6f726520776f72647301009f4b128dd2765a"
)


def read(stored: bytes, sys_flag: int) -> bytes:
    return inflate(stored, sys_flag, "log", 1000)


@pytest.mark.parametrize(
    ("stored", "sys_flag"),
    [
        (zlib.compress(TEXT), 0x001),
        (zlib.compress(TEXT), 0x301),
        (LZ4, 0x101),
        (LZ4_CHECKED, 0x101),
        (ZSTD, 0x201),
    ],
)
def test_what_other_libraries_compressed_is_inflated(stored: bytes, sys_flag: int) -> None:
    assert read(stored, sys_flag) == TEXT
    if sys_flag & 0x300 != 0x300 and sys_flag != 0x001:
        assert read(stored + stored, sys_flag) == TEXT + TEXT  # frames in a row, as Java


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "body",
    [b"x" * 100, TEXT * 1000, bytes(9 << 20), bytes(1 << 20), NOISE + bytes(5 << 20)],
    ids=["short", "words", "zeros", "one block", "half noise"],
)
def test_a_body_comes_back_from_every_kind(kind: CompressionKind, body: bytes) -> None:
    made = Compression(kind, over_bytes=0)
    stored = made.compress(body)
    assert len(stored) < len(body)
    assert read(stored, made.sys_flag) == body


@pytest.mark.parametrize("kind", KINDS)
def test_a_body_that_gets_no_smaller_or_is_short_is_left_alone(kind: CompressionKind) -> None:
    assert Compression(kind, over_bytes=0).compress(NOISE) is NOISE
    assert Compression(kind).compress(NOISE[:50]) == NOISE[:50]
    just_under = bytes(4095)
    assert Compression(kind).compress(just_under) is just_under
    assert len(Compression(kind).compress(bytes(4096))) < 100


def test_an_lz4_frame_is_made_of_independent_blocks_that_java_reads() -> None:
    frame = Compression("lz4", over_bytes=0).compress(bytes(5 << 20))
    assert frame[:7].hex() == "04224d18607073"  # no linked blocks, no checksums, 4 MiB
    assert frame[-4:] == bytes(4)
    mixed = Compression("lz4", over_bytes=0).compress(NOISE + bytes(5 << 20))
    assert int.from_bytes(mixed[7:11], "little") == 0x80000000 | 4 << 20  # noise is stored plain


def test_the_flag_says_how_it_was_compressed() -> None:
    assert [Compression(kind).sys_flag for kind in KINDS] == [0x301, 0x101, 0x201]
    assert sys_flag_names(0x301) == ["COMPRESSED(ZLIB)"]


def test_levels_are_passed_on_and_checked() -> None:
    words = random.Random(1).choices([b"to", b"be", b"or", b"not", b"that"], k=20_000)
    body = b" ".join(words)
    for kind in KINDS:
        highest = {"zlib": 9, "lz4": 12, "zstd": 19}[kind]
        sizes = [len(Compression(kind, level=level).compress(body)) for level in (1, highest)]
        assert sizes[1] < sizes[0]
        for level in (-1, 20):
            with pytest.raises(ConfigError, match=f"level {level} of {kind} is not from"):
                Compression(kind, level=level)


def test_settings_that_cannot_be_used_are_refused() -> None:
    wrong: Any = "gzip"
    with pytest.raises(ConfigError, match="'gzip' is not 'zlib', 'lz4' or 'zstd'"):
        Compression(wrong)
    with pytest.raises(ConfigError, match="over -1 bytes"):
        Compression("zlib", -1)


def test_only_a_body_that_the_flag_calls_compressed_is_inflated() -> None:
    assert read(TEXT, 0x300) == TEXT
    assert read(b"", 0x301) == b""  # RocketMQ does not inflate an empty body either


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_cut_anywhere_is_refused(kind: CompressionKind) -> None:
    made = Compression(kind, over_bytes=0)
    stored = made.compress(TEXT * 3)
    for length in range(1, len(stored)):
        with pytest.raises(
            CorruptRecordError, match=rf"log: .* 1000: its body is not a valid {kind} stream"
        ):
            read(stored[:length], made.sys_flag)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("garbage", [b"\0", b"\0\0\0\0", b"garbage", b"\xff" * 9])
def test_bytes_behind_a_stream_are_refused(kind: CompressionKind, garbage: bytes) -> None:
    made = Compression(kind, over_bytes=0)
    for body in (TEXT * 3, bytes(3 << 20)):
        with pytest.raises(CorruptRecordError, match=f"its body is not a valid {kind} stream"):
            read(made.compress(body) + garbage, made.sys_flag)


def test_garbage_behind_a_long_zlib_stream_is_refused() -> None:
    stored = zlib.compress(NOISE[: 1 << 20], 0)
    for extra in (1, 1 << 20):
        with pytest.raises(CorruptRecordError, match="other bytes follow it"):
            read(stored + bytes(extra), 0x301)


@pytest.mark.parametrize("number", [4, 5, 6, 7])
def test_an_unknown_kind_is_named(number: int) -> None:
    with pytest.raises(CorruptRecordError, match=f"unknown method, number {number}; known are"):
        read(TEXT, 0x1 | number << 8)


@pytest.mark.parametrize("kind", KINDS)
def test_a_bomb_is_stopped_before_it_takes_more_than_the_limit(
    kind: CompressionKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Compression(kind, over_bytes=0)
    limit = 8 << 20
    monkeypatch.setattr(compression, "INFLATED_BODY_MAX_BYTES", limit)
    exact, bomb = made.compress(bytes(limit)), made.compress(bytes(20 * limit))
    assert len(read(exact, made.sys_flag)) == limit
    used_before = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        with pytest.raises(MessageTooLargeError, match="log: the inflated body of the record"):
            read(bomb, made.sys_flag)
        assert tracemalloc.get_traced_memory()[1] < limit + limit // 8 + (5 << 20)
    finally:
        tracemalloc.stop()
    assert pa.total_allocated_bytes() - used_before < 1 << 20


@pytest.mark.parametrize(
    ("sys_flag", "names"),
    [
        (0, []),
        (0x1, ["COMPRESSED(ZLIB)"]),
        (0x101, ["COMPRESSED(LZ4)"]),
        (0x201, ["COMPRESSED(ZSTD)"]),
        (0x701, ["COMPRESSED(type 7)"]),
        (0x200, ["INFLATED(ZSTD)"]),
        (0x36, ["PREPARED", "MULTI_TAGS", "BORN_IPV6", "STORE_IPV6"]),
        (0x8, ["COMMIT"]),
        (0xC, ["ROLLBACK"]),
        (0xC0, ["NEED_UNWRAP", "INNER_BATCH"]),
        (-(2**31), ["0x80000000"]),
    ],
)
def test_every_bit_of_the_flag_has_a_name(sys_flag: int, names: list[str]) -> None:
    assert sys_flag_names(sys_flag) == names
