"""Compressed bodies: zlib streams, LZ4 frames and zstd frames, read and written.

- RocketMQ's own clients can read the written form: zlib with its two-byte header, LZ4 frames of
  independent blocks of 4 MiB without checksums, as lz4-java's, and plain zstd frames.
- Several frames in a row are read as one body, as in Java. Bytes outside a frame and truncated
  streams are refused.
- The CRC of a record is that of the stored, compressed body.
- Memory while inflating: the output is counted in blocks of 1 MiB, and stops at
  ``INFLATED_BODY_MAX_BYTES``. Until then there are at most this, an eighth of it as room to grow,
  and a few blocks; the window of a zstd decoder never holds more than was inflated.

Source: RocketMQ 5.3.3, ``CompressorFactory``, ``CompressionType``, ``MessageSysFlag``.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import pyarrow as pa

from rocketray.errors import ConfigError, CorruptRecordError, MessageTooLargeError

from .sys_flag import COMPRESSED

CompressionKind = Literal["zlib", "lz4", "zstd"]
COMPRESS_OVER_BYTES = 4096  # RocketMQ's compressMsgBodyOverHowmuch
INFLATED_BODY_MAX_BYTES = 64 * 1024 * 1024  # RocketMQ has no limit; 4 MiB can inflate to 4 GiB

# Bits 8 to 10 of SYSFLAG.
_KINDS: dict[int, CompressionKind] = {0: "zlib", 1: "lz4", 2: "zstd", 3: "zlib"}
_WRITTEN_AS = {"lz4": 1, "zstd": 2, "zlib": 3}  # bits 8 to 10; 0 is what old clients wrote
_LEVELS = {"zlib": (0, 9), "lz4": (1, 12), "zstd": (1, 19)}
_DEFAULT_LEVELS = {"zlib": 5, "lz4": 1, "zstd": 3}  # zlib: RocketMQ's
_BLOCK_BYTES = 1 << 20  # inflated in one step, and counted after it
_LZ4_BLOCK_BYTES = 4 << 20  # as in the header below
_LZ4_STORED = 0x80000000  # in a block's size: the block is stored, not compressed
# Magic; version 1 and independent blocks; blocks up to 4 MiB; the checksum of these two bytes.
_LZ4_HEADER = bytes.fromhex("04224d18607073")
_LZ4_END = bytes(4)  # a block of size 0 ends the frame


@dataclass(frozen=True, slots=True)
class Compression:
    """A producer's compression: bodies of at least *over_bytes* that it makes smaller.

    ``level``: zlib 0 to 9, LZ4 1 to 12, zstd 1 to 19; None for 5, 1 and 3.
    """

    kind: CompressionKind
    over_bytes: int = COMPRESS_OVER_BYTES
    level: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(CompressionKind):
            raise ConfigError(f"compression {self.kind!r} is not 'zlib', 'lz4' or 'zstd'")
        if self.over_bytes < 0:
            raise ConfigError(f"compression over {self.over_bytes} bytes: give 0 or more")
        lowest, highest = _LEVELS[self.kind]
        if self.level is not None and not lowest <= self.level <= highest:
            raise ConfigError(
                f"compression level {self.level} of {self.kind} is not from {lowest} to {highest}"
            )

    @property
    def sys_flag(self) -> int:
        """The SYSFLAG bits of a compressed body."""
        return COMPRESSED | _WRITTEN_AS[self.kind] << 8

    def compress(self, body: bytes) -> bytes:
        """Return *body* in stored form; *body* itself if it is short, or did not become smaller."""
        if len(body) < self.over_bytes:
            return body
        level = _DEFAULT_LEVELS[self.kind] if self.level is None else self.level
        stored = _COMPRESSORS[self.kind](body, level)
        return stored if len(stored) < len(body) else body


def inflate(stored: bytes, sys_flag: int, path: str, physical_offset: int) -> bytes:
    """Return the body stored as *stored* under *sys_flag*; itself if it is not compressed.

    An empty body is never compressed, whatever the flag says. *path* and *physical_offset* are of
    the record, for errors.

    Raises:
        CorruptRecordError: the kind of compression is unknown, or the stream is damaged, cut
            short, or followed by other bytes.
        MessageTooLargeError: it inflates to more than ``INFLATED_BODY_MAX_BYTES``.
    """
    if not sys_flag & COMPRESSED or not stored:
        return stored
    number = sys_flag >> 8 & 7
    kind = _KINDS.get(number)
    if kind is None:
        raise CorruptRecordError(
            path,
            physical_offset,
            f"its body is compressed by an unknown method, number {number}; "
            "known are 0 and 3 (zlib), 1 (lz4) and 2 (zstd)",
        )
    blocks = _zlib_blocks(stored) if kind == "zlib" else _frame_blocks(stored, kind)
    try:
        inflated = _collect(blocks)
    except (_DamagedStreamError, zlib.error, OSError, pa.ArrowException) as error:
        raise CorruptRecordError(
            path, physical_offset, f"its body is not a valid {kind} stream: {error}"
        ) from None
    if inflated is None:
        raise MessageTooLargeError(
            f"{path}: the inflated body of the record at {physical_offset}",
            # The true size is not known: inflating has stopped.
            INFLATED_BODY_MAX_BYTES + 1,
            INFLATED_BODY_MAX_BYTES,
        )
    return inflated


class _DamagedStreamError(Exception):
    """A stream that does not end with its bytes."""


def _collect(blocks: Iterator[bytes]) -> bytes | None:
    """Return all blocks in one, or None when they are over the limit."""
    gathered = io.BytesIO()
    for block in blocks:
        if gathered.tell() + len(block) > INFLATED_BODY_MAX_BYTES:
            return None
        gathered.write(block)
    return gathered.getvalue()


def _zlib_blocks(stored: bytes) -> Iterator[bytes]:
    inflater, rest = zlib.decompressobj(), stored
    while not inflater.eof:
        block = inflater.decompress(rest, _BLOCK_BYTES)
        rest = inflater.unconsumed_tail
        if not block and not rest and not inflater.eof:
            raise _DamagedStreamError("it is truncated")
        yield block
    if inflater.unused_data:
        raise _DamagedStreamError("other bytes follow it")


def _frame_blocks(stored: bytes, kind: CompressionKind) -> Iterator[bytes]:
    stream = pa.CompressedInputStream(pa.BufferReader(stored), kind)
    return iter(partial(stream.read, _BLOCK_BYTES), b"")


def _lz4_frame(body: bytes, level: int) -> bytes:
    """Return one frame; built here because Arrow's blocks are linked, which Java refuses."""
    codec = pa.Codec("lz4_raw", compression_level=level)
    parts = [_LZ4_HEADER]
    for start in range(0, len(body), _LZ4_BLOCK_BYTES):
        block = body[start : start + _LZ4_BLOCK_BYTES]
        packed = codec.compress(block, asbytes=True)
        if len(packed) < len(block):
            parts += (len(packed).to_bytes(4, "little"), packed)
        else:
            parts += ((len(block) | _LZ4_STORED).to_bytes(4, "little"), block)
    return b"".join((*parts, _LZ4_END))


def _zstd_frame(body: bytes, level: int) -> bytes:
    packed: bytes = pa.Codec("zstd", compression_level=level).compress(body, asbytes=True)
    return packed


_COMPRESSORS: dict[str, Any] = {"zlib": zlib.compress, "lz4": _lz4_frame, "zstd": _zstd_frame}
