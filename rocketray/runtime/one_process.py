"""Objects of one process, which a fork of it inherits and must not use.

A child of ``fork`` has a copy of each object, and shares what that is mapped to: a producer in the
child would write into the ring of the parent's. The threads behind the copies do not exist there,
and a lock that one of them held stays held.

Invariants
  1. An inherited object of a subclass of :class:`OfOneProcess` raises :class:`ForkedError` at each
     use, before it touches a lock, a file or a socket. ``close`` and the end of a ``with`` block do
     nothing: the object is the parent's to close.
  2. Nothing of this costs the parent, or a process that never forks, anything at a call: the child
     gives the inherited objects another class when it begins.
  3. Such an object is not pickled: a copy would be of no process.
  4. What a library keeps threads for is never freed in a fork (:func:`not_freed_in_forks`).
"""

from __future__ import annotations

import ctypes
import inspect
import os
import types
import uuid
from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar, NoReturn, Self, TypeVar
from weakref import WeakSet

from rocketray.errors import ConfigError, ForkedError

_made: WeakSet[OfOneProcess] = WeakSet()
_not_freed: WeakSet[Any] = WeakSet()
"""Objects of libraries that this process made, and its forks do not free."""
PartT = TypeVar("PartT")
_process = os.getpid()


class OfOneProcess:
    """The base of what belongs to the process that makes it."""

    __slots__ = ("__weakref__",)
    what_it_is: ClassVar[str] = "object"
    ends_with: ClassVar[tuple[str, ...]] = ("close",)

    def __init_subclass__(cls, what: str = "", ends: tuple[str, ...] = (), **more: Any) -> None:
        """Take how the errors call it: for a part of an object, the object.

        In a fork, *ends* (by default ``close``) do nothing, whatever the end of a block asks for.
        """
        super().__init_subclass__(**more)
        cls.what_it_is = what or cls.what_it_is
        cls.ends_with = ends or cls.ends_with

    def __new__(cls, *_: object, **__: object) -> Self:
        """Note that this process makes it."""
        made = super().__new__(cls)
        made._bind()
        return made

    def _bind(self) -> None:
        """Note that it is of this process from now on."""
        _made.add(self)

    def __reduce__(self) -> NoReturn:
        """Raise :class:`ConfigError`: it is not pickled, and not copied."""
        raise ConfigError(
            f"a {self.what_it_is} belongs to one process, and cannot be pickled or copied; make "
            "one in each process that needs it, as in the initializer of a ProcessPoolExecutor"
        )


def not_freed_in_forks(part: PartT) -> PartT:
    """Return *part*, an object of a library, which a fork of this process never frees.

    Its destructor would wait there for threads that a fork lacks, or end a call of the parent's
    over the socket that both have.
    """
    _not_freed.add(part)
    return part


def keep_for_ever(part: object) -> None:
    """Let no destructor of *part* run in this process: it has one reference too many."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(part))


def unique_here() -> Callable[[], str]:
    """Return a function that always returns one unique text in a process, and another in a fork."""
    of_process = cache(lambda _process: uuid.uuid4().hex)
    return lambda: of_process(os.getpid())


@cache  # a fork may inherit thousands of objects of a few kinds
def _inherited_form(kind: type[OfOneProcess], maker: int) -> type[OfOneProcess]:
    """Return the class that an object of *kind* has in a fork of the process that made it."""

    def get(self: OfOneProcess, name: str) -> Any:
        if name.startswith("__"):  # Python itself asks for these: __class__ in isinstance()
            return object.__getattribute__(self, name)
        if name in kind.ends_with:
            return ends[name]
        raise ForkedError(kind.what_it_is, maker, os.getpid())

    def put(*_: object) -> NoReturn:
        raise ForkedError(kind.what_it_is, maker, os.getpid())

    ends = {name: _nothing(getattr(kind, name, None)) for name in kind.ends_with}
    body = {
        "__module__": kind.__module__,
        # None of its own: an object takes only another class of the same layout.
        "__slots__": (),
        "__getattribute__": get,
        "__setattr__": put,
    }
    return types.new_class(kind.__name__, (kind,), exec_body=lambda space: space.update(body))


def _nothing(method: Callable[..., object] | None) -> Callable[..., object]:
    """Return a function that does nothing, which is awaited if *method* is."""

    async def nothing_awaited(*_: object) -> None: ...

    return nothing_awaited if inspect.iscoroutinefunction(method) else _do_nothing


def _do_nothing(*_: object) -> None: ...


def _mark_inherited() -> None:
    """Let all that the parent made raise, in the child that begins."""
    global _made, _process
    for part in _not_freed:
        keep_for_ever(part)
    inherited, maker = list(_made), _process
    _made, _process = WeakSet(), os.getpid()
    for each in inherited:
        kind: Any = type(each)
        each.__class__ = _inherited_form(kind, maker)


os.register_at_fork(after_in_child=_mark_inherited)
