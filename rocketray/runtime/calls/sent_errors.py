"""Errors as JSON: what a service says to its clients.

An error of rocketray is its class's name and its arguments, if those are texts and numbers; another
one is sent as its text. The receiver makes errors of known classes only.
"""

from __future__ import annotations

import json
from typing import Any

from rocketray import errors
from rocketray.errors import StreamError

SentError = StreamError | OSError
_CLASSES: dict[str, type[StreamError]] = {
    name: found
    for name, found in vars(errors).items()
    if isinstance(found, type) and issubclass(found, StreamError)
}
_SYSTEM = "OSError"
_ARGUMENTS_MAX = 8  # the errors of rocketray have five at most


def error_to_json(error: SentError) -> list[Any]:
    """Return an error as a list: the name of its class, then its arguments."""
    if isinstance(error, OSError):
        return [
            _SYSTEM,
            error.errno,
            error.strerror or str(error),
            error.filename and str(error.filename),
        ]
    name = type(error).__name__
    if _CLASSES.get(name) is not type(error) or not _is_plain(error.args):
        return [StreamError.__name__, str(error)]
    return [name, *error.args]


def error_from_json(value: Any) -> SentError:
    """Return the error that :func:`error_to_json` wrote; a ``StreamError`` for anything else."""
    if not isinstance(value, list) or not value or not _is_plain(value):
        return StreamError(f"the node failed: {value!r:.500}")
    name, *arguments = value
    try:
        if name == _SYSTEM:
            return OSError(*arguments)
        return _CLASSES[name](*arguments)
    except (KeyError, TypeError):  # a class, or arguments, of another release
        return StreamError(f"the node failed: {value!r:.500}")


def write_error(error: SentError) -> bytes:
    """Return the text of :func:`error_to_json`."""
    return json.dumps(error_to_json(error)).encode()


def read_error(text: bytes) -> SentError | None:
    """Return the error that :func:`write_error` wrote; None if *text* is none."""
    try:
        return error_from_json(json.loads(text))
    except ValueError:
        return None


def _is_plain(values: Any) -> bool:
    # Texts and numbers alone: an object cannot be rebuilt without trusting its sender.
    return len(values) <= _ARGUMENTS_MAX and all(
        each is None or isinstance(each, str | int) for each in values
    )
