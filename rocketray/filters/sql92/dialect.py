"""The SQL dialects, and the versions of their rules.

A filter is its text, its dialect and its rules: the same text in another dialect, or by other
rules, is another filter, and state made for one filter (a group's subscription, a bitmap, a
checkpoint) is never used for another.

    dialect     rules  new
    rocketmq    1      RocketMQ's SQL92, exact to the error
    rocketray   1      names in double quotes, LIKE, and IN with numbers
    rocketray   2      a text beside an integer is compared as a number, whatever its form

The dialect "rocketray" never contradicts a verdict of RocketMQ's on an expression that RocketMQ
reads to its end: it ignores the text from what it does not know on, such as LIKE. Where RocketMQ
fails on the form of a number, "rocketray" compares numerically (coercion.py has the rule cell by
cell). Stored filters keep the rules that they were stored with.
"""

from __future__ import annotations

from typing import Literal, get_args

from rocketray.errors import ConfigError

Dialect = Literal["rocketmq", "rocketray"]
DIALECTS: tuple[Dialect, ...] = get_args(Dialect)

DEFAULT_DIALECT: Dialect = "rocketray"
"""The dialect of a user's expression that names none."""

_CURRENT: dict[Dialect, int] = {"rocketmq": 1, "rocketray": 2}


def current_rules(dialect: Dialect) -> int:
    """Return the current version of the rules of *dialect*, used for new expressions.

    Raises:
        ConfigError: there is no such dialect.
    """
    if dialect not in DIALECTS:
        raise ConfigError(f"dialect is {dialect!r:.60}; give 'rocketray' or 'rocketmq'")
    return _CURRENT[dialect]


def check_rules(dialect: Dialect, rules: int) -> int:
    """Return *rules*, if this program supports them.

    Raises:
        ConfigError: they are of a later program, or not a version.
    """
    current = current_rules(dialect)
    if type(rules) is not int or not 1 <= rules <= current:
        raise ConfigError(
            f"dialect {dialect!r}: rules {rules!r:.60} are not supported by this version of "
            f"rocketray, which supports 1 to {current}; use the version that wrote them"
        )
    return rules
