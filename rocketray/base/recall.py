"""Recall handles: texts that identify a delayed message, to cancel it before it is due.

The form is that of RocketMQ's ``RecallMessageHandle``: base64 of fields separated by blanks. The
fields are ours: version, the waiting place of the message, and its unique key. So a handle that is
forged or belongs to another node finds no message.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import NamedTuple

from rocketray.errors import InvalidMessageError
from rocketray.message import PROPERTIES_MAX_BYTES

from .system_topics import WAITING_QUEUES

# Digits are limited, so that no text becomes a huge number: QUEUE_COUNT_MAX has 4, and 18 are below
# 2**63.
_FORM = re.compile(r"v1 ([A-Za-z0-9_]+) ([0-9]{1,4}) ([0-9]{1,18}) (.+)", re.DOTALL)
_TEXT_MAX = 2 * PROPERTIES_MAX_BYTES  # base64 of a place and a unique key is shorter


class RecallHandle(NamedTuple):
    """The waiting place of a delayed message, and its unique key."""

    topic: str
    queue_id: int
    queue_offset: int
    unique_key: str

    def __str__(self) -> str:
        fields = f"v1 {self.topic} {self.queue_id} {self.queue_offset} {self.unique_key}"
        return base64.urlsafe_b64encode(fields.encode()).decode()

    @classmethod
    def parse(cls, text: str) -> RecallHandle:
        """Parse a handle.

        Raises:
            InvalidMessageError: *text* is not a handle.
        """
        try:
            raw = base64.b64decode(text.encode(), b"-_", validate=True)
            match = _FORM.fullmatch(raw.decode()) if len(text) <= _TEXT_MAX else None
        except (binascii.Error, UnicodeError):
            match = None
        if match is not None and match[1] in WAITING_QUEUES:
            handle = cls(match[1], int(match[2]), int(match[3]), match[4])
            # Base64 decodes several texts to the same bytes, and digits may have zeros before them:
            # only the text that the send returned is accepted.
            if str(handle) == text:
                return handle
        raise InvalidMessageError(
            f"{text[:60]!r} is not a recall handle; use the whole handle that the send of a "
            "delayed message returned"
        )
