"""Errors in what a user typed: they end the command with code 2, before anything is done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from rocketray.errors import ConfigError


@contextmanager
def usage_error(*kinds: type[Exception], hint: str | None = None) -> Iterator[None]:
    """Turn an error of these *kinds*, by default a ConfigError, into one of usage.

    *hint* names the option or argument, where typer does not know it. It is a decorator, too: of a
    function that reads a value.
    """
    wrong = kinds or (ConfigError,)
    try:
        yield
    except wrong as error:
        raise typer.BadParameter(str(error), param_hint=hint) from None
