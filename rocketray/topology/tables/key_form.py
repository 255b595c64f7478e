"""Keys of a table as the messages of its changelog have them; without Faust, for commands.

A key is the sharding key and the business key of its changes. One that no property can hold, or
that is the key of another record, is base64, with KEY_ENCODING beside it.
"""

from __future__ import annotations

import base64

from rocketray.broker.topics.ownership_record import OWNERSHIP_KEY
from rocketray.errors import InvalidMessageError
from rocketray.message import SHARDING_KEY, StoredMessage
from rocketray.topology.values.wire import key_of, utf8_text

_NO_TEXT = (None, OWNERSHIP_KEY)  # no property can hold it; it is the key of another record
_KEY_ENCODING = "KEY_ENCODING"
_BASE64 = "base64"


def key_form(key: bytes) -> tuple[str, dict[str, str]]:
    """Return the text that stands for *key* in its changes, and the property that says how.

    The text of an empty key is empty: such a change has no business key.
    """
    text = utf8_text(key)
    if key and text in _NO_TEXT:
        return base64.b64encode(key).decode(), {_KEY_ENCODING: _BASE64}
    return text or "", {}


def changed_key(stored: StoredMessage) -> bytes:
    """Return the key of a stored change.

    Raises:
        InvalidMessageError: the message has no key, so it is no change.
    """
    key = key_of(stored.properties)
    if key is None:
        raise InvalidMessageError(
            f"{stored.topic}/{stored.queue_id} offset {stored.queue_offset} has no {SHARDING_KEY}, "
            "so it is not a change of a table; send no other messages to changelogs"
        )
    if stored.properties.get(_KEY_ENCODING) == _BASE64:
        return base64.b64decode(key)
    return key
