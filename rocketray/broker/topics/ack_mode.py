"""The modes of an acknowledgement: when a message counts as stored.

Which one applies is said by the call of a send; else by its producer; else by the topic that the
message is for, also while it waits in another one; else by the node, which says memory at first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from rocketray.errors import ConfigError
from rocketray.runtime.ipc.acknowledgement import Durability

AckMode = Literal["memory", "disk"]
"""When a message counts as stored: in the memory of its files, or after a sync to disk."""
_DURABILITY: Mapping[object, Durability] = {"memory": Durability.MEMORY, "disk": Durability.DISK}


def durability_of(ack: object) -> Durability:
    """Return the durability of an ack mode; raise :class:`ConfigError` for another text."""
    try:
        return _DURABILITY[ack]
    except (KeyError, TypeError):
        raise ConfigError(f"ack {ack!r:.60} is not 'memory' or 'disk'; give one of them") from None


def check_ack(ack: AckMode | None) -> AckMode | None:
    """Return *ack*, which may leave it open (None); raise as :func:`durability_of`."""
    if ack is not None:
        durability_of(ack)
    return ack
