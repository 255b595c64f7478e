"""Limits of values from files and other processes, declared with the types of the values.

``Annotated[int, Limit(9)]`` is a number from 0 to 9, and ``Annotated[Sequence[str], Limit(9)]`` has
9 texts at most. A function instead of a limit takes the value, and returns it or raises. They are
applied where a value is read (runtime/calls/value_forms.py, and numbers by json_fields.py), and not
where it is made.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from .names import check_group, check_topic


class Limit(NamedTuple):
    """The largest number, or length of a collection; and the least one."""

    most: float
    least: float = 0


SentOffset = Annotated[int, Limit((1 << 63) - 1)]  # offsets are i64 in RocketMQ's files
SentQueueId = Annotated[int, Limit((1 << 31) - 1)]  # and queue ids i32
SentTopic = Annotated[str, check_topic]
SentGroup = Annotated[str, check_group]
