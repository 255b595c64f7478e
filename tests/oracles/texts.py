"""The kernels of ``rocketray/kernels/texts.py`` in plain Python."""

from __future__ import annotations

import numpy as np
from oracles.hashing import separated_key_hashes

from rocketray.kernels._compile import Bytes, Int32s, Int64s
from rocketray.kernels.texts import KEY_TEXT, TAG_TEXT

_TRIMMED = bytes(range(0x20 + 1))


def first_bad_text(data: Bytes, starts: Int64s, sizes: Int64s, kind: int) -> int:
    for i, (start, size) in enumerate(zip(starts.tolist(), sizes.tolist(), strict=True)):
        text = data[start : start + max(size, 0)].tobytes()
        bad = not text or any(refused in text for refused in (b"\0", b"\x01", b"\x02"))
        bad |= kind == KEY_TEXT and b" " in text
        is_no_tag = text == b"*" or b"||" in text or text != text.strip(_TRIMMED)
        if size >= 0 and (bad or (kind == TAG_TEXT and is_no_tag)):
            return i
    return -1


def hash_record_keys(
    unique: Bytes,
    unique_starts: Int64s,
    unique_sizes: Int64s,
    keys: Bytes,
    key_starts: Int64s,
    key_sizes: Int64s,
    seed: int,
    hashes: Int32s,
    records: Int32s,
) -> int:
    found: list[tuple[bytes, int]] = []
    for i in range(len(unique_sizes)):
        texts = [_text(unique, unique_starts[i], unique_sizes[i])] if unique_sizes[i] >= 0 else []
        texts += _text(keys, key_starts[i], key_sizes[i]).split(b" ")
        found += [(text, i) for text in texts if text]
    joined = b"".join([text + b"\x02" for text, _ in found])
    separated_key_hashes(np.frombuffer(joined, np.uint8), seed, hashes)
    records[: len(found)] = [i for _, i in found]
    return len(found)


def _text(data: Bytes, start: int, size: int) -> bytes:
    return data[start : start + max(size, 0)].tobytes()
