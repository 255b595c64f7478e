"""The instructions of a condition on properties: see ``conditions.py``.

An instruction sets a register to FALSE, TRUE or NULL, and may jump, so that AND and OR skip
operands they do not need. It is a row of int64, one for each :class:`Column`; the meaning of A to D
depends on the operation:

    CONSTANT    A state
    MOVE        A register
    NOT         A register
    IS_NULL     A register, B state when it is null, C state otherwise
    STATES      A left and C right register, B test, D rule
    TEXTS       A left and C right property, B state when equal
    PRESENCE    A property, B state when it is present
    TRUTH       A property: whether it is "true" in any case
    INTEGER     A property, B test, C the number to compare with, D the state of an invalid text
    NUMBER      A property, B test, C the integer to compare with, by value for a text of any form
    DOUBLE      A property, B test, C which of the doubles to compare with
    NUMBERS     A left and C right property, B test; both as doubles
    TEXT        A property, B state when it is one of several texts, C the first, D how many
    CONTAINS, STARTSWITH, ENDSWITH
                A property, B state when true, C the text
    LIKE        A property, B state when true, C the first number of the pattern

A test is one of :class:`Accepts`. The texts of a TEXT are sorted by size, then by bytes. The
pattern of a LIKE is: the states that repeat, the one that accepts, and for each of 256 bytes the
states that it leads on from; a state is a bit. See ``filters/sql92/like.py``.
"""

from __future__ import annotations

from enum import IntEnum


class State(IntEnum):
    """The result of a condition for a row; from NOT_INT32 on there is none, up to ODD an error."""

    FALSE = 0
    TRUE = 1
    NULL = 2
    NOT_INT32 = 3
    NOT_INT64 = 4
    NOT_DOUBLE = 5
    BOOLEAN_WITH_TEXT = 6
    ODD = 7  # too unusual for a kernel: the row must be evaluated elsewhere


class Accepts(IntEnum):
    """The orders that a comparison accepts: bit number order + 1, for an order of -1, 0 or 1."""

    LESS = 1
    EQUAL = 2
    LESS_OR_EQUAL = 3
    GREATER = 4
    UNEQUAL = 5
    GREATER_OR_EQUAL = 6


class Rule(IntEnum):
    """The comparison by STATES of two states that are not NULL."""

    BY_VALUE = 0
    ALWAYS_LESS = 1
    REFUSED = 2  # BOOLEAN_WITH_TEXT


class Column(IntEnum):
    """The fields of an instruction."""

    OPERATION = 0
    REGISTER = 1  # the one to set
    NEUTRAL = 2  # a state that leaves the register unchanged, or -1
    STOP = 3  # a state that causes the jump, or -1
    TARGET = 4  # the instruction to jump to
    ABSENT = 5  # the state when property A is absent, from PRESENCE on
    EXOTIC = 6  # 1: with text that is not ASCII, the row is ODD
    A = 7
    B = 8
    C = 9
    D = 10


class Operation(IntEnum):
    """The operation of an instruction; from PRESENCE on it reads a property, perhaps absent.

    The kernel has a branch for each. A row that reaches one without a branch is ODD.
    """

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
