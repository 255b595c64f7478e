"""A node's filter rules: the operator's policy, persisted.

- A predicate runs in the filter actor with all permissions of that process, so a node runs none
  unless it is allowed: a module with all below it, or one ``module:callable``.
- SQL92 is on unless it was switched off.
- The latest rules are in DATA/config/filterRules.json, and hold until they are changed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rocketray.base.file_form import FileForm
from rocketray.base.json_fields import json_fields, read_value
from rocketray.errors import ConfigError, FilterError, StoreError, SubscriptionRefusedError
from rocketray.filters.class_filter import check_predicate
from rocketray.filters.subscription import Subscription
from rocketray.runtime.files.paths import config_directory
from rocketray.runtime.files.state_files import read_json, write_json

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(:[A-Za-z_]\w*)?", re.ASCII)
_FORM = FileForm("config/filterRules.json")
_LIMIT_MS_MAX = 60_000  # so long a hanging predicate goes unnoticed
_SQL_IS_OFF = (
    "SQL92 is switched off on this node; subscribe by tags, or have the node started with: "
    "rocketray start --property-filter"
)
# Installed with every node: no user defines predicates in them, and each can be made to do harm.
_NO_PREDICATES = frozenset(
    ("faust", "numba", "numpy", "orjson", "pandas", "pyarrow", "pyspark", "ray", "rocketray")
)


@dataclass(frozen=True, slots=True)
class FilterRules:
    """The rules.

    Attributes:
        allowed: modules and ``module:callable`` paths from which groups may name predicates.
        time_limit_ms: how long a predicate may take for a batch of messages.
        property_filter: whether groups may subscribe by SQL92; ``enablePropertyFilter``.
    """

    allowed: tuple[str, ...] = field(default=(), metadata={"json": "allowedPredicates"})
    time_limit_ms: int = field(default=1000, metadata={"json": "predicateTimeLimitMs"})
    property_filter: bool = field(default=True, metadata={"json": "enablePropertyFilter"})

    def __post_init__(self) -> None:
        for name in self.allowed:
            if not _NAME.fullmatch(name):
                raise ConfigError(
                    f"allowed predicate {name!r} is neither a module, as shop.filters, nor a "
                    "module:callable, as shop.filters:is_large"
                )
        if not 1 <= self.time_limit_ms <= _LIMIT_MS_MAX:
            raise ConfigError(
                f"predicates may take {self.time_limit_ms} ms a batch; give 1 to {_LIMIT_MS_MAX}"
            )

    def check(self, group: str, topic: str, subscription: Subscription) -> None:
        """Check that *group* may subscribe to *topic* with *subscription*.

        A refusal begins with the status and the code of RocketMQ's ``ResponseCode``.

        Raises:
            PredicateError: it names a predicate that is not allowed.
            SubscriptionRefusedError: it does not parse, or SQL92 is switched off.
        """
        try:
            subscription.check_text()
        except FilterError as error:
            reason = f"SUBSCRIPTION_PARSE_FAILED (23): {error}"
            raise SubscriptionRefusedError(group, topic, reason) from None
        if subscription.expression_type == "SQL92" and not self.property_filter:
            raise SubscriptionRefusedError(group, topic, f"SYSTEM_ERROR (1): {_SQL_IS_OFF}")
        if subscription.expression_type == "CLASS":
            check_predicate(subscription.expression, allowed=self.allowed)

    def check_filter(self, subscription: Subscription) -> None:
        """Check that groups of this node may subscribe with *subscription*.

        Raises:
            FilterSyntaxError: it does not parse. PredicateError: its predicate is not allowed.
            ConfigError: SQL92 is switched off.
        """
        subscription.check_text()
        if subscription.expression_type == "SQL92" and not self.property_filter:
            raise ConfigError(_SQL_IS_OFF)
        if subscription.expression_type == "CLASS":
            check_predicate(subscription.expression, allowed=self.allowed)

    def doubts(self) -> list[str]:
        """Return a line for each allowed name that is wider than probably meant."""
        return [
            f"--allow-predicates {name} lets every group run any function of {name} as this user; "
            "allow the module in which your predicates are defined, or one module:callable"
            for name in self.allowed
            if _is_too_wide(name)
        ]

    def allowing(self, names: Sequence[str]) -> FilterRules:
        return replace(self, allowed=tuple(dict.fromkeys((*self.allowed, *names))))

    @classmethod
    def load(cls, data: Path) -> FilterRules:
        """Return the rules saved last; without any, the defaults, which allow no predicate.

        Raises:
            StoreError: the file holds no such rules, or is of a later version.
        """
        value = read_json(_path(data), _FORM)
        try:
            return cls() if value is None else read_value(cls, value)
        except ValueError as error:
            raise StoreError(
                f"{_path(data)} has no valid filter rules ({type(error).__name__}: {error}); "
                "restore it from a copy, or remove it to allow no predicates"
            ) from None

    def save(self, data: Path) -> None:
        write_json(_path(data), _FORM.of(json_fields(self)), backup=False)


def _is_too_wide(name: str) -> bool:
    module, _, function = name.partition(":")
    root = module.partition(".")[0]
    return root in sys.stdlib_module_names or (not function and module in _NO_PREDICATES)


def _path(data: Path) -> Path:
    return config_directory(data) / "filterRules.json"
