"""The oracle of a kernel: the function with its module's and its own name in this folder."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")


def oracle_of(kernel: Callable[_P, _R]) -> Callable[_P, _R]:
    """The function in plain Python that takes what *kernel* takes and must do the same."""
    module = import_module(kernel.__module__)
    (name,) = (name for name, value in vars(module).items() if value is kernel)
    oracle: Callable[_P, _R] = getattr(
        import_module(f"oracles.{module.__name__.split('.')[-1]}"), name
    )
    return oracle
