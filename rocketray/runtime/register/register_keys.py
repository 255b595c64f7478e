"""Keys and values of a register: their form and their limits, the same for every store.

A key is a path: parts of letters, digits, ``-``, ``_`` and ``.``, with ``/`` between them. A part
begins with no point, so a store can use such names itself.
"""

from __future__ import annotations

import re

from rocketray.errors import StoreError

KEY_MAX_LENGTH = 200
"""A file system allows 255 for the last part, S3 1024 for all parts and the prefix of the URL."""
VALUE_MAX_BYTES = 1024 * 1024
"""etcd refuses requests of more than 1.5 MiB, with the key and all else that is in it."""
_PART = r"[A-Za-z0-9_-][A-Za-z0-9._-]*"
_KEY = re.compile(rf"{_PART}(?:/{_PART})*", re.ASCII)


def is_key(text: str) -> bool:
    return len(text) <= KEY_MAX_LENGTH and _KEY.fullmatch(text) is not None


def check_key(key: str) -> str:
    """Return *key*; raises :class:`StoreError` if it has another form, or is too long."""
    if not is_key(key):
        raise StoreError(
            f"invalid key of a register: {key!r:.300}; use up to {KEY_MAX_LENGTH} letters, digits, "
            "'-', '_', '.', and '/' between parts that begin with no '.'"
        )
    return key


def check_folder(folder: str) -> str:
    """Return *folder*, the beginning of keys up to a ``/``, or "" for that of all keys."""
    return check_key(folder) if folder else folder


def check_size(key: str, size: int) -> None:
    """Raise :class:`StoreError` if a value of *size* bytes is too large for a register."""
    if size > VALUE_MAX_BYTES:
        raise StoreError(
            f"{key}: {size} bytes are more than the {VALUE_MAX_BYTES} that a register stores "
            "under a key; remove topics, groups or named filters that are not needed"
        )
