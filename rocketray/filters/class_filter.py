"""Class filters: predicates that the operator names by import path, ``"module:callable"``.

Rules
  1. Nothing is uploaded, unpickled or evaluated from text. A path is two checked names; the module
     must be importable, and the path allowed, in the process that filters.
  2. An allowed module allows what is defined in it, not what it imports.
  3. A predicate gets one message, a :class:`~rocketray.filters.message_filter.RecordView`, and
     returns True or False. With ``@predicate(batch=True)`` it gets an Arrow batch, and returns an
     array of truth values.
  4. Any other return value is an error, because a forgotten ``return`` or a coroutine would
     otherwise silently decide for every message.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache, partial
from importlib import import_module
from typing import Any, TypeVar, overload

from rocketray.errors import PredicateError

Predicate = Callable[[Any], Any]
BATCH_COLUMNS = ("tags", "keys", "properties", "body")
_PATH = re.compile(r"(?P<module>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):(?P<name>[A-Za-z_]\w*)", re.ASCII)
_COLUMNS_MARK = "__rocketray_columns__"
_F = TypeVar("_F", bound=Predicate)


@overload
def predicate(function: _F) -> _F: ...
@overload
def predicate(*, batch: bool = ..., columns: Sequence[str] = ...) -> Callable[[_F], _F]: ...
def predicate(
    function: Any = None, *, batch: bool = False, columns: Sequence[str] = BATCH_COLUMNS
) -> Any:
    """Mark a function as a class filter: of a message, or with ``batch`` of a batch of messages.

    A batch predicate gets a ``pyarrow.RecordBatch`` with just *columns*, one row per message, named
    as in all Arrow batches of messages: topic, queueId, queueOffset, body, tags, keys, properties,
    bornTimestamp, storeTimestamp, msgId, shardingKey. It returns a NumPy or Arrow array with one
    truth value per row; null means no match. Only *columns* are read; properties cost most.

    Returns the function itself: it can be called, tested, and given as ``where=``.

    Raises:
        PredicateError: the argument is not a plain function.
    """

    def mark(marked: _F) -> _F:
        name = getattr(marked, "__qualname__", repr(marked))
        _check_function(name, marked)
        if batch:
            setattr(marked, _COLUMNS_MARK, tuple(columns))
        return marked

    return mark if function is None else mark(function)


def batch_columns(function: Predicate) -> tuple[str, ...] | None:
    """Return the columns that a batch predicate reads; None for a predicate of single messages."""
    columns: tuple[str, ...] | None = getattr(function, _COLUMNS_MARK, None)
    return columns


def predicate_path(function: Callable[..., Any]) -> str:
    """Return the import path of *function*, which must stand at the top level of a module.

    Raises:
        PredicateError: it is a lambda, a local function, a method or part of a script, so no other
            process could import it.
    """
    name = getattr(function, "__qualname__", "")
    module = _module_name(function)
    path = f"{module}:{name}"
    found = getattr(sys.modules.get(getattr(function, "__module__", None) or ""), name, None)
    if module is None or found is not function or not _PATH.fullmatch(path):
        raise PredicateError(
            f"predicate {name or repr(function)} cannot be imported by another process: define it "
            "with def at the top level of an importable module, not in a script, and pass it, or "
            "its name as 'module:callable'"
        )
    return path


def load_predicate(path: str, *, allowed: Collection[str] | None = None) -> Predicate:
    """Import the predicate that *path* names.

    Args:
        path: ``"module:callable"``, ASCII names.
        allowed: modules, with all that is defined in and below them, and single
            ``module:callable`` paths, wherever they are defined; None allows all.

    Raises:
        PredicateError: the path is malformed or not allowed, its module does not import, or its
            name is not a callable that takes a message.
    """
    module, name = check_predicate(path, allowed=allowed)
    function = _load(module, name)
    if allowed is not None and path not in allowed:
        _check_home(path, function, allowed)
    return function


def check_predicate(path: str, *, allowed: Collection[str] | None = None) -> tuple[str, str]:
    """Return the module and the name in *path* without importing; raise as the import does."""
    match = _PATH.fullmatch(path)
    if match is None:
        raise PredicateError(
            f"predicate {path!r} is not of the form 'module:callable', as 'shop.filters:is_large'"
        )
    if allowed is not None and not _is_allowed(path, match["module"], allowed):
        raise PredicateError(
            f"predicate {path!r} is not allowed on this node, which allows "
            f"{', '.join(map(repr, sorted(allowed))) or 'none'}; allow it with: "
            f"rocketray start --allow-predicates {match['module']}"
        )
    return match["module"], match["name"]


def _check_home(path: str, function: Any, allowed: Collection[str]) -> None:
    """Raise for a function that an allowed module only imports, or builds from its imports."""
    # A partial has the module of functools; what it calls is what runs.
    while isinstance(function, partial):
        function = function.func
    home = getattr(function, "__module__", None) or "builtins"
    if not _is_allowed("", home, allowed):
        raise PredicateError(
            f"predicate {path!r} is defined in {home!r}, which this node does not allow; define it "
            f"with def in a module that it allows, or allow it with: rocketray start "
            f"--allow-predicates {path}"
        )


def _is_allowed(path: str, module: str, allowed: Collection[str]) -> bool:
    # With the dot, so that shop allows shop.filters and not shopping.
    return path in allowed or any(f"{module}.".startswith(f"{each}.") for each in allowed)


@lru_cache(maxsize=256)  # import and check once, for all members and streams
def _load(module: str, name: str) -> Predicate:
    path = f"{module}:{name}"
    try:
        imported = import_module(module)
    # A module that calls sys.exit when it is imported must not end the node.
    except (Exception, SystemExit) as error:
        raise PredicateError(
            f"predicate {path!r}: module {module!r} cannot be imported ({type(error).__name__}: "
            f"{error}); put it on the Python path of the node"
        ) from error
    try:
        function: Predicate = getattr(imported, name)
    except AttributeError:
        raise PredicateError(
            f"predicate {path!r}: module {module!r} has no {name!r}; name one of its functions"
        ) from None
    _check_function(path, function)
    return function


def _check_function(path: str, found: Any) -> None:
    if inspect.isclass(found) or not callable(found):
        kind = "class" if inspect.isclass(found) else type(found).__name__
        raise PredicateError(
            f"predicate {path!r} is a {kind}; name a function that takes a message and returns "
            "True or False"
        )
    if inspect.iscoroutinefunction(found) or inspect.isgeneratorfunction(found):
        raise PredicateError(
            f"predicate {path!r} is a coroutine or generator function; write it with a plain def "
            "that returns True or False"
        )


def _module_name(function: Callable[..., Any]) -> str | None:
    """Return the module's importable name: a module run by ``python -m`` is named ``__main__``."""
    name: str | None = getattr(function, "__module__", None)
    if name != "__main__":
        return name
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec.name if spec is not None else None
