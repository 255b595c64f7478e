"""The compilation of kernels.

A kernel is a function of this package whose annotations give the exact types of its machine code:
``int`` and ``bool``, the arrays below, and tuples of numbers as a result.
  - It is compiled for those types only, with the GIL released. The machine code is cached beside
    the source, or in Numba's cache folder if that is read-only.
  - Compilation happens in ``compile_once``, which shard processes and the filter call when they
    start, or on the first call. Numba is imported then: a process without kernels, such as the
    coordinator and most commands, starts sooner and needs less memory.
  - An ``In`` array is declared read-only, which accepts writable ones too: a kernel exists once.
  - ``tests/oracles`` has a function of the same name and arguments in plain Python for each kernel.
    Tests compare the two.

Rules for kernels
  1. Numba checks no bounds: a kernel checks every length that comes from a file or the network.
  2. A cached kernel does not notice a change in another file. After editing ``intrinsics.py``,
     ``layout.py``, the table of ack modes or a ``device`` function, delete ``__pycache__`` in this
     folder.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import FunctionType
from typing import Annotated, Any, ParamSpec, TypeVar, cast, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt

from rocketray.errors import UnsupportedPlatformError

_P = ParamSpec("_P")
_R = TypeVar("_R")
_LOG = logging.getLogger(__name__)
# Several threads may make the first call of a kernel. Reentrant, because a kernel's parts are made
# while it is made.
_COMPILING = threading.RLock()
_KERNELS: list[_Kernel] = []

Bytes = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]

# The metadata are the arguments of Numba's array type: element, dimensions, and read-only.
InBytes = Annotated[Bytes, ("uint8", 1, True)]
InInt32s = Annotated[Int32s, ("int32", 1, True)]
InInt64s = Annotated[Int64s, ("int64", 1, True)]
InInt64Rows = Annotated[Int64s, ("int64", 2, True)]
InDoubles = Annotated[Doubles, ("float64", 1, True)]
OutBytes = Annotated[Bytes, ("uint8", 1, False)]
OutBools = Annotated[Bools, ("boolean", 1, False)]
OutInt32s = Annotated[Int32s, ("int32", 1, False)]
OutInt64s = Annotated[Int64s, ("int64", 1, False)]
OutInt64Rows = Annotated[Int64s, ("int64", 2, False)]

_SCALARS = {int: "int64", bool: "boolean", type(None): "void"}


class _LaterModule:
    """A module that is imported when it is used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        _numba()
        return getattr(import_module(self._name), name)


types: Any = _LaterModule("numba.types")
ir: Any = _LaterModule("llvmlite.ir")
cgutils: Any = _LaterModule("numba.core.cgutils")


class _Part:
    """What a kernel consists of, or calls: made for Numba when a kernel is compiled.

    ``symbols()`` are the C functions of libraries that it calls, itself or in its parts.
    """

    def __init__(self, make: Callable[[], Any], symbols: Callable[[], set[str]] = set) -> None:
        self._make = make
        self._made: Any = None
        self.symbols = symbols

    def made(self) -> Any:
        with _COMPILING:
            if self._made is None:
                self._made = self._make()
            return self._made


class _Kernel(_Part):
    """A kernel; it looks like its function, and calls the machine code."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(lambda: _compiled(function), lambda: _symbols(function))
        self.py_func = function
        self.__name__ = function.__name__
        self.__module__ = function.__module__
        self.__doc__ = function.__doc__

    @property
    def is_compiled(self) -> bool:
        return self._made is not None

    def __call__(self, *arguments: Any) -> Any:
        # Without the lock once it is made.
        return (self._made or self.made())(*arguments)


def kernel(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Compile *function* for the types of its annotations: see the docstring of this module."""
    made = _Kernel(function)
    _KERNELS.append(made)
    return cast("Callable[_P, _R]", made)


def compile_all() -> None:
    """Compile every kernel of the modules imported so far."""
    for each in _KERNELS:
        each.made()


def device(function: Callable[..., Any]) -> Callable[..., Any]:
    """Declare a function that only kernels call; compiled into each of them."""
    # Not inlined: an array would be passed as seven arguments, in twice the time.
    return cast(
        "Callable[..., Any]",
        _Part(
            lambda: _numba().njit(nogil=True, forceinline=True)(_complete(function)),
            lambda: _symbols(function),
        ),
    )


def intrinsic(function: Callable[..., Any]) -> Callable[..., Any]:
    """Declare an instruction that only kernels use; see ``numba.extending.intrinsic``."""
    return cast(
        "Callable[..., Any]",
        _Part(lambda: import_module("numba.extending").intrinsic(function)),
    )


def external(name: str, signature: Callable[[], Any], library: str | None = None) -> Any:
    """Declare a C function of this process, or of *library*, which only kernels call."""

    def make() -> Any:
        if library is not None:
            import_module("llvmlite.binding").load_library_permanently(library)
        return types.ExternalFunction(name, signature())

    return _Part(make, lambda: set() if library is None else {name})


def _compiled(function: Callable[..., Any]) -> Any:
    """Return the function that Numba has compiled, or loaded from its cache."""
    hints = get_type_hints(function, include_extras=True)
    returns = _type(hints.pop("return"))
    complete = _complete(function)
    # Part of the name in the cache: code that needs a library is never loaded without it.
    complete.__qualname__ = "_with_".join([function.__qualname__, *sorted(_symbols(function))])
    dispatcher = _dispatcher(complete)
    dispatcher.compile(returns(*map(_type, hints.values())))
    # One that may compile for further types accepts no writable array for a read-only one.
    dispatcher.disable_compile()
    return dispatcher


def _complete(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return *function* with Numba's objects for what it calls."""
    assert isinstance(function, FunctionType)
    made = {name: part.made() for name, part in _parts(function).items()}
    complete = FunctionType(function.__code__, {**function.__globals__, **made}, function.__name__)
    complete.__qualname__ = function.__qualname__
    return complete


def _parts(function: Callable[..., Any]) -> dict[str, _Part]:
    """Return what *function* calls that is made for Numba, by name."""
    assert isinstance(function, FunctionType)
    names = {name: function.__globals__.get(name) for name in function.__code__.co_names}
    return {name: part for name, part in names.items() if isinstance(part, _Part)}


def _symbols(function: Callable[..., Any]) -> set[str]:
    return set[str]().union(*(part.symbols() for part in _parts(function).values()))


def _type(hint: Any) -> Any:
    if get_origin(hint) is Annotated:
        element, dimensions, readonly = hint.__metadata__[0]
        return types.Array(getattr(types, element), dimensions, "C", readonly=readonly)
    if get_origin(hint) is tuple:
        return types.Tuple([_type(part) for part in get_args(hint)])
    return getattr(types, _SCALARS[hint])


def _dispatcher(function: Callable[..., Any]) -> Any:
    """Return *function* as Numba's dispatcher, not compiled yet."""
    njit = _numba().njit
    try:
        return njit(nogil=True, cache=True)(function)
    except RuntimeError as error:
        # Numba has one error for this and for others, and only its text tells them apart.
        if "cannot cache" not in str(error):
            raise
        _say_once()
        return njit(nogil=True)(function)


def _numba(byte_order: str = sys.byteorder) -> Any:
    """Import Numba, without which no part of rocketray works that handles messages."""
    if byte_order != "little":  # kernels read several bytes as one number, lowest byte first
        raise UnsupportedPlatformError(
            "rocketray needs a little-endian processor, and this one is big-endian"
        )
    try:
        return import_module("numba")
    except ImportError as error:
        raise UnsupportedPlatformError(
            f"rocketray needs Numba, which cannot be imported: {error}; install the versions that "
            "rocketray requires, for example with: pip install --upgrade rocketray"
        ) from error


@cache
def _say_once() -> None:
    _LOG.warning(
        "kernels are compiled again in every process, which takes about 15 s: neither the "
        "package's folder nor the user's cache folder can be written; set NUMBA_CACHE_DIR to one "
        "that can"
    )
