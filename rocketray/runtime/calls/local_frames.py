"""Frames of the calls over a node's own socket, which commands on its machine use.

    frame   u32 bytes, big-endian | that many bytes of JSON
    hello   {"rocketray": release}, from both sides, the first frame of each
    call    {"interface", "method", "to": [[actor, [key, …]], …], "given": arguments}
    answer  {"results": […]}, one of each actor, or {"error": …} (sent_errors.py)

Arguments and results have the forms of their types (value_forms.py), which differ from release to
release. So a side ends a connection whose other side is of another release, and says so.
"""

from __future__ import annotations

import socket
import struct
from typing import Any

from .call_text import read_text, write_text

REQUEST_MAX_BYTES = 16 * 1024 * 1024
"""The limit of a call: three times one message of 4 MiB, which has 5.3 MiB in base64."""
REPLY_MAX_BYTES = 1024 * 1024 * 1024
"""The limit of an answer: three times 64 messages of 4 MiB, which have 341 MiB in base64."""
_LENGTH = struct.Struct(">I")
_CREDENTIALS = struct.Struct("=3i")  # process, user and group


class FrameError(Exception):
    """The other side sent no frame of this form, or one that is too large."""


def write_frame(link: socket.socket, value: Any, max_bytes: int) -> None:
    """Send a frame; raise :class:`FrameError`, before anything is sent, if it is too large."""
    text = write_text(value)
    if len(text) > max_bytes:
        raise FrameError(f"a frame of {len(text)} bytes, and the limit is {max_bytes}")
    link.sendall(_LENGTH.pack(len(text)))
    link.sendall(text)


def read_frame(link: socket.socket, max_bytes: int) -> dict[str, Any] | None:
    """Return the next frame; None if the other side ended the connection before it.

    Raises:
        FrameError: it is too large, cut short, or no JSON object. OSError: the connection failed.
    """
    header = _read(link, _LENGTH.size)
    if not header:
        return None
    size = _LENGTH.unpack(header)[0] if len(header) == _LENGTH.size else 0
    if not 0 < size <= max_bytes:
        raise FrameError(f"a frame of {size} bytes, and the limit is {max_bytes}")
    text = _read(link, size)
    if len(text) < size:
        raise FrameError(f"a frame of {size} bytes was cut short after {len(text)}")
    try:
        value = read_text(text)
    except ValueError as error:
        raise FrameError(f"a frame of {size} bytes is no JSON: {error!r:.100}") from None
    if not isinstance(value, dict):
        raise FrameError(f"a frame is {value!r:.60}, and no object")
    return value


def peer_user(link: socket.socket) -> int:
    """Return the user of the process at the other side of a local socket."""
    found = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(found)[1])


def _read(link: socket.socket, size: int) -> bytes:
    """Return *size* bytes, or fewer if the connection ends."""
    parts = bytearray()
    while len(parts) < size:
        # recv allocates what it is asked for: not a gigabyte because a header says so.
        part = link.recv(min(size - len(parts), 1 << 20))
        if not part:
            break
        parts += part
    return bytes(parts)
