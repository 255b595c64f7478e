"""The modes of an acknowledgement: when a message counts as stored. One table, a row for each.

Which one applies is said by the call of a send; else by its producer; else by the topic that the
message is for, also while it waits in another one; else by the node, which says memory at first.

To add a mode, add its text to :data:`AckMode` and its row to :class:`Durability`, and describe it
in ``docs/reference/durability.md``. The options of commands, the checks, the kernel that stores
frames and the writer of a shard read this table. They ask what a mode demands, and compare with
none: a demand that no row has yet is a new column, which ``ShardAppends.settle`` fulfils.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Literal, Self, get_args

from rocketray.errors import ConfigError

AckMode = Literal["memory", "disk"]
"""When a message counts as stored: in the memory of its files, or after a sync to disk."""


class Durability(IntEnum):
    """The table: what is true of a message when it is acknowledged, by mode.

    A mode's value is its number in a frame of a ring. Rings outlive their processes, so a number
    keeps its meaning: others may be added, without a gap.

    Attributes:
        text: the mode as users write it.
        needs_sync: whether the message is on disk; else it is in the mapped files.
        safe_from: what does not lose the message, for the help of options.
    """

    text: AckMode
    needs_sync: bool
    safe_from: str

    MEMORY = 0, "memory", False, "process failures"
    DISK = 1, "disk", True, "power loss"

    def __new__(cls, number: int, text: AckMode, needs_sync: bool, safe_from: str) -> Self:  # noqa: FBT001 - a column of the table
        """Make a row; to find one by its number, call :func:`durability_numbered`."""
        row = int.__new__(cls, number)
        row._value_ = number
        row.text, row.needs_sync, row.safe_from = text, needs_sync, safe_from
        return row


_BY_NUMBER: Mapping[int, Durability] = {int(mode): mode for mode in Durability}
_BY_TEXT: Mapping[object, Durability] = {mode.text: mode for mode in Durability}
assert (*_BY_NUMBER,) == (*range(len(Durability)),)  # the kernel knows only how many there are
assert (*_BY_TEXT,) == get_args(AckMode)  # a type checker reads no table
ACK_PROMISES = "safe from " + ", or ".join(f"{mode.safe_from} ({mode.text})" for mode in Durability)
"""What the modes promise, for the help of options."""


def durability_of(ack: object) -> Durability:
    """Return the row of an ack mode; raise :class:`ConfigError` for another text."""
    try:
        return _BY_TEXT[ack]
    except (KeyError, TypeError):
        raise unknown_ack(ack) from None


def durability_numbered(number: int) -> Durability | None:
    """Return the row of a number in a frame or a call; None for one of a later version."""
    return _BY_NUMBER.get(number)


def check_ack(ack: AckMode | None) -> AckMode | None:
    """Return *ack*, which may leave it open (None); raise as :func:`durability_of`."""
    if ack is not None:
        durability_of(ack)
    return ack


def unknown_ack(ack: object) -> ConfigError:
    modes = " or ".join(repr(mode.text) for mode in Durability)
    return ConfigError(f"ack {ack!r:.60} is not {modes}; give one of them")
