"""Endpoints of a node: typed interfaces that one process implements and others call.

An interface is a protocol, declared beside the values it uses. Type checkers compare it with both
sides: with the object that implements it (:meth:`ServedObjects.serve`), and with each call of a
client (:func:`client_of`). So a new call is a method of the interface and one of the object.

A call names the interface and the method. Only public methods of an interface can be called.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar, cast

__all__ = [
    "COORDINATOR_NAME",
    "FILTER_NAME",
    "GATEWAY_NAME",
    "CallTransport",
    "Endpoint",
    "InProcess",
    "ServedObjects",
    "client_of",
    "does_wait",
    "method_of",
    "waits",
]

COORDINATOR_NAME = "coordinator"
GATEWAY_NAME = "gateway"
FILTER_NAME = "filter"

InterfaceT = TypeVar("InterfaceT")
_Method = TypeVar("_Method", bound=Callable[..., Any])
_WAITS = "__waits__"


@dataclass(frozen=True, slots=True)
class Endpoint(Generic[InterfaceT]):
    """An interface, and the name of the actor with the object that implements it."""

    actor: str
    interface: type[InterfaceT]


class CallTransport(Protocol):
    """The way of calls to the processes of a node."""

    def call(self, endpoint: Endpoint[Any], method: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of the object behind *endpoint*; return its result or raise its error."""


def waits(method: _Method) -> _Method:
    """Declare a method of an interface that waits for other actors: it gets a thread of its own."""
    setattr(method, _WAITS, True)
    return method


def does_wait(method: Callable[..., Any]) -> bool:
    """Return whether a method of an interface waits for other actors."""
    return getattr(method, _WAITS, False)


def method_of(interface: type, name: str) -> Callable[..., Any]:
    """Return a public method of *interface*; raise AttributeError if it has none of that name."""
    for base in interface.__mro__:
        found = vars(base).get(name)
        if callable(found) and not name.startswith("_"):
            return cast("Callable[..., Any]", found)
    raise AttributeError(f"{interface.__name__} has no method {name!r}")


class _Client:
    """An object of an interface whose methods are calls."""

    def __init__(self, transport: CallTransport, endpoint: Endpoint[Any]) -> None:
        self._transport = transport
        self._endpoint = endpoint

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        method_of(self._endpoint.interface, name)
        return partial(self._transport.call, self._endpoint, name)


def client_of(transport: CallTransport, endpoint: Endpoint[InterfaceT]) -> InterfaceT:
    """Return an object of the endpoint's interface, each method of which calls over *transport*."""
    return cast("InterfaceT", _Client(transport, endpoint))


class ServedObjects:
    """The objects behind the services of one actor."""

    def __init__(self) -> None:
        self._objects: dict[str, tuple[Endpoint[Any], Callable[[], Any]]] = {}

    def serve(self, endpoint: Endpoint[InterfaceT], find: Callable[[], InterfaceT]) -> None:
        """Answer calls of *endpoint* by the object that *find* returns."""
        self._objects[endpoint.interface.__name__] = endpoint, find

    def call(self, interface: str, method: str, /, *arguments: Any, **options: Any) -> Any:
        """Call a method of the object that serves *interface*.

        Raises:
            AttributeError: there is no such interface here, or it has no such method.
        """
        if interface not in self._objects:
            raise AttributeError(f"no object here serves {interface}")
        endpoint, find = self._objects[interface]
        method_of(endpoint.interface, method)
        return getattr(find(), method)(*arguments, **options)


class InProcess:
    """A transport to objects of this process."""

    def __init__(self, served: ServedObjects) -> None:
        self._served = served

    def call(self, endpoint: Endpoint[Any], method: str, *arguments: Any, **options: Any) -> Any:
        """Call the object at once."""
        return self._served.call(endpoint.interface.__name__, method, *arguments, **options)
