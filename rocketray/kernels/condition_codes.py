"""The instructions by which a condition on properties is run: see ``conditions.py``.

An instruction sets a register to FALSE, TRUE or NULL, and may jump, which is how AND and OR leave
out what they need not know. It is a row of int64, one for each :class:`Column`; what A to D mean
depends on the operation:

    CONSTANT    A state
    MOVE        A register
    NOT         A register
    IS_NULL     A register, B state when it is null, C state otherwise
    STATES      A left and C right register, B test, D rule
    TEXTS       A left and C right property, B state when equal
    PRESENCE    A property, B state when it is there
    TRUTH       A property: whether it is "true" in any case
    INTEGER     A property, B test, C the number to compare with, D the state of a text that is none
    NUMBER      A property, B test, C the integer to compare with, by the value of a text of any form
    DOUBLE      A property, B test, C which of the doubles to compare with
    NUMBERS     A left and C right property, B test; both as doubles
    TEXT        A property, B state when it is one of several texts, C the first, D how many
    CONTAINS, STARTSWITH, ENDSWITH
                A property, B state when it is so, C the text
    LIKE        A property, B state when it is so, C the first number of the pattern

A test is one of :class:`Accepts`. The texts of a TEXT are sorted by
size, then by bytes. The pattern of a LIKE is: which states repeat, which one accepts, and for each
of 256 bytes which states it leads on from; a state is a bit. See ``filters/sql92/like.py``.
"""

from __future__ import annotations

from enum import IntEnum

__all__ = ["Accepts", "Column", "Operation", "Rule", "State"]


class State(IntEnum):
    """What a condition is worth for a row; from NOT_INT32 on it has none, up to ODD an error."""

    FALSE = 0
    TRUE = 1
    NULL = 2
    NOT_INT32 = 3
    NOT_INT64 = 4
    NOT_DOUBLE = 5
    BOOLEAN_WITH_TEXT = 6
    ODD = 7  # too unusual for a kernel: the row has to be evaluated elsewhere


class Accepts(IntEnum):
    """The orders that a comparison accepts: bit number order + 1, for an order of -1, 0 or 1."""

    LESS = 1
    EQUAL = 2
    LESS_OR_EQUAL = 3
    GREATER = 4
    UNEQUAL = 5
    GREATER_OR_EQUAL = 6


class Rule(IntEnum):
    """How STATES compares two states that are not NULL."""

    BY_VALUE = 0
    ALWAYS_LESS = 1
    REFUSED = 2  # BOOLEAN_WITH_TEXT


class Column(IntEnum):
    """What stands where in an instruction."""

    OPERATION = 0
    REGISTER = 1  # that is set
    NEUTRAL = 2  # a state that leaves the register as it is, or -1
    STOP = 3  # a state with which to jump, or -1
    TARGET = 4  # the instruction to jump to
    ABSENT = 5  # the state when property A is not there, from PRESENCE on
    EXOTIC = 6  # 1: with text that is not ASCII, the row is ODD
    A = 7
    B = 8
    C = 9
    D = 10


class Operation(IntEnum):
    """What an instruction does; from PRESENCE on it takes a property, which may be absent."""

    CONSTANT = 0
    MOVE = 1
    NOT = 2
    IS_NULL = 3
    STATES = 4
    TEXTS = 5
    PRESENCE = 6
    TRUTH = 7
    INTEGER = 8
    NUMBER = 9
    DOUBLE = 10
    NUMBERS = 11
    TEXT = 12
    CONTAINS = 13
    STARTSWITH = 14
    ENDSWITH = 15
    LIKE = 16
