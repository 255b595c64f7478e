"""Endpoints of a node: typed interfaces that one process implements and others call.

An interface is a protocol, declared beside the values it uses. Type checkers compare it with both
sides: with the object that implements it (:meth:`ServedObjects.serve`), and with each call of a
client (:func:`client_of`). So a new call is a method of the interface and one of the object.

A call names the interface, the object and the method. Only public methods of an interface can be
called.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast

# Only a whole UUID counts as a disk: apps have names of their own in the same namespace of Ray.
_OF_DISK = re.compile(r".*@([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})", re.ASCII)
CALL_TIMEOUT_S = 60.0
"""How long a call waits for its result.

A shard stores no batch after that time (``call_ends_ms``), so a sender that then repeats the call
cannot have it stored twice.
"""

COORDINATOR_NAME = "coordinator"
GATEWAY_NAME = "gateway"
SPARE_GATEWAY_NAME = "gateway-spare"
FILTER_NAME = "filter"
_OF_NODE = (COORDINATOR_NAME, GATEWAY_NAME, SPARE_GATEWAY_NAME, FILTER_NAME)
_SHARDS = "shards:"

InterfaceT = TypeVar("InterfaceT")
Arguments = ParamSpec("Arguments")
ResultT = TypeVar("ResultT")
_Method = TypeVar("_Method", bound=Callable[..., Any])
# Marks on the methods of protocols, so that no transport keeps a list of them.
_WAITS, _ONCE, _BULK_S = "__waits__", "__once__", "__bulk_s__"


def on_disk(name: str, disk: str) -> str:
    """Return the name of an actor, or of a process, that a cluster has once for each disk.

    *disk* is the UUID of a joined disk; it is empty for the disk that has the coordinator.
    """
    return f"{name}@{disk}" if disk else name


def disk_in(name: str) -> str:
    """Return the disk in the name of an actor that :func:`on_disk` returned, else ""."""
    found = _OF_DISK.fullmatch(name)
    return found[1] if found else ""


def process_actor(process: str) -> str:
    return f"{_SHARDS}{process}"


def is_of_node(name: str) -> bool:
    """Return whether that is the name of an actor that a node starts, whatever its disk.

    The hosts of apps and of their sinks have names in the same namespace of Ray. No node ends them.
    """
    disk = disk_in(name)
    return name.startswith(_SHARDS) or name in {on_disk(each, disk) for each in _OF_NODE}


@dataclass(frozen=True, slots=True)
class Endpoint(Generic[InterfaceT]):
    """An interface, the name of the actor that implements it, and which of its objects does."""

    actor: str
    interface: type[InterfaceT]
    key: tuple[Any, ...] = ()


class Caller(Protocol):
    """The way of calls to one process; see :func:`client_of`."""

    def call(self, endpoint: Endpoint[Any], method: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of the object behind *endpoint*; return its result or raise its error."""


class CallTransport(Caller, Protocol):
    """The way of calls to the processes of a node."""

    def call_each(
        self,
        endpoints: Sequence[Endpoint[InterfaceT]],
        method: Callable[Concatenate[InterfaceT, Arguments], ResultT],
        *arguments: Arguments.args,
        **options: Arguments.kwargs,
    ) -> list[ResultT]:
        """Call *method* of the objects behind several endpoints at once; return the results."""

    def in_background(self, run: Callable[[], None], /) -> None:
        """Run a function that makes calls, beside the caller; or at once if calls take no time."""

    def is_local(self, disk: str) -> bool:
        """Return whether this process can map the memory of the processes of a disk."""

    def has_files(self, disk: str) -> bool:
        """Return whether this process can read the files of a disk."""


def waits(method: _Method) -> _Method:
    """Declare a method of an interface that waits for other actors: it gets a thread of its own."""
    setattr(method, _WAITS, True)
    return method


def once(method: _Method) -> _Method:
    """Declare a method of an interface whose call no transport repeats: that would do it twice."""
    setattr(method, _ONCE, True)
    return method


def bulk(wait_max_s: float) -> Callable[[_Method], _Method]:
    """Declare a method of an interface whose result has large binary values: frames of messages.

    Between machines it travels as a stream. *wait_max_s* is how long the call takes by itself.
    """

    def mark(method: _Method) -> _Method:
        setattr(method, _BULK_S, wait_max_s)
        return method

    return mark


def bulk_wait_s(method: Callable[..., Any]) -> float | None:
    """Return how long a call takes that was declared :func:`bulk`; None for another one."""
    return getattr(method, _BULK_S, None)


def is_once(method: Callable[..., Any]) -> bool:
    """Return whether no transport may repeat a call of a method."""
    return getattr(method, _ONCE, False)


def does_wait(method: Callable[..., Any]) -> bool:
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

    def __init__(self, transport: Caller, endpoint: Endpoint[Any]) -> None:
        self._transport = transport
        self._endpoint = endpoint

    def __getattr__(self, name: str) -> Callable[..., Any]:
        # copy, pickle and debuggers ask for such names: each would become a call to the node.
        if name.startswith("_"):
            raise AttributeError(name)
        method_of(self._endpoint.interface, name)
        return partial(self._transport.call, self._endpoint, name)


def client_of(transport: Caller, endpoint: Endpoint[InterfaceT]) -> InterfaceT:
    """Return an object of the endpoint's interface, each method of which calls over *transport*."""
    return cast("InterfaceT", _Client(transport, endpoint))


class ServedObjects:
    """The objects behind the services of one actor."""

    def __init__(self) -> None:
        self._objects: dict[str, tuple[type, Callable[..., Any]]] = {}

    def serve(self, interface: type[InterfaceT], find: Callable[..., InterfaceT]) -> None:
        """Answer calls of *interface* by the object that *find* returns for the endpoint's key."""
        self._objects[interface.__name__] = interface, find

    def call(
        self, interface: str, key: tuple[Any, ...], method: str, /, *arguments: Any, **options: Any
    ) -> Any:
        """Call a method of the object that serves *interface* for *key*.

        Raises:
            AttributeError: there is no such interface here, or it has no such method.
        """
        if interface not in self._objects:
            raise AttributeError(f"no object here serves {interface}")
        declared, find = self._objects[interface]
        # The name comes from another process: only what the interface declares may be called.
        method_of(declared, method)
        return getattr(find(*key), method)(*arguments, **options)

    def pid(self) -> int:
        """Return the process id, by which the node finds what its raylet started (ray_watch.py)."""
        return os.getpid()


def run_in_thread(run: Callable[[], None]) -> None:
    """Run a function that makes calls in a thread, which does not outlive the program."""
    threading.Thread(target=run, daemon=True, name="calls").start()


def _at_once(run: Callable[[], None]) -> None:
    run()


Around = Callable[[Endpoint[Any], str, Callable[[], Any]], Any]


class InProcess:
    """A transport to objects of this process."""

    def __init__(self, served: ServedObjects, around: Around | None = None) -> None:
        """Take *around*, which runs each call, with what it needs before and after it."""
        self._served = served
        self._around = around
        self.shares_memory = True
        """Whether producers send through shared memory, as on the node's machine."""
        self.in_background: Callable[[Callable[[], None]], None] = _at_once
        """Run a function that makes calls; a test may give it a thread, as on another Ray node."""

    def call(self, endpoint: Endpoint[Any], method: str, *arguments: Any, **options: Any) -> Any:
        """Call the object at once."""
        given = endpoint.interface.__name__, endpoint.key, method, *arguments
        run = partial(self._served.call, *given, **options)
        return run() if self._around is None else self._around(endpoint, method, run)

    def call_each(
        self,
        endpoints: Sequence[Endpoint[InterfaceT]],
        method: Callable[Concatenate[InterfaceT, Arguments], ResultT],
        *arguments: Arguments.args,
        **options: Arguments.kwargs,
    ) -> list[ResultT]:
        """Call one object after the other."""
        return [self.call(each, method.__name__, *arguments, **options) for each in endpoints]

    def is_local(self, _: str) -> bool:
        """Return whether producers send through shared memory."""
        return self.shares_memory

    def has_files(self, _: str) -> bool:
        """Return True: the files are those of this process."""
        return True
