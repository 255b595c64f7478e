"""Which predicates a node runs, and how long each may take: the operator's word, kept on disk.

A class filter runs in the filter actor with all that this process may do, so a node runs none
unless it was named: a module with all that is below it, or one ``module:callable``. What was said
last stands in DATA/config/predicates.json, and holds until something else is said.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rocketray.errors import ConfigError
from rocketray.filters.class_filter import check_predicate
from rocketray.filters.subscription import Subscription

from .files import read_json, write_json
from .layout import config_directory

__all__ = ["PredicateRules"]

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(:[A-Za-z_]\w*)?", re.ASCII)
_LIMIT_MS_MAX = 60_000


@dataclass(frozen=True, slots=True)
class PredicateRules:
    """``allowed``: modules and ``module:callable`` paths. The time is for a batch of messages."""

    allowed: tuple[str, ...] = ()
    time_limit_ms: int = 1000

    def __post_init__(self) -> None:
        for name in self.allowed:
            if not _NAME.fullmatch(name):
                raise ConfigError(
                    f"allowed predicate {name!r} is no module, as shop.filters, and no "
                    "module:callable, as shop.filters:is_large"
                )
        if not 1 <= self.time_limit_ms <= _LIMIT_MS_MAX:
            raise ConfigError(
                f"predicates may take {self.time_limit_ms} ms a batch; give 1 to {_LIMIT_MS_MAX}"
            )

    def check(self, subscription: Subscription) -> None:
        """Raise PredicateError when *subscription* names a predicate that is not allowed."""
        if subscription.expression_type == "CLASS":
            check_predicate(subscription.expression, allowed=self.allowed)

    def allowing(self, names: Sequence[str]) -> PredicateRules:
        """The same rules, with *names* allowed as well."""
        return replace(self, allowed=tuple(dict.fromkeys((*self.allowed, *names))))

    @classmethod
    def load(cls, data: Path) -> PredicateRules:
        """What :meth:`save` wrote last; the defaults, which allow nothing, before that."""
        value = read_json(_path(data))
        return cls() if value is None else cls(tuple(value["allowed"]), int(value["timeLimitMs"]))

    def save(self, data: Path) -> None:
        """Keep the rules for the next start."""
        write_json(_path(data), {"allowed": list(self.allowed), "timeLimitMs": self.time_limit_ms})


def _path(data: Path) -> Path:
    return config_directory(data) / "predicates.json"
