"""The service of a node's own socket: clients on its machine ask it, and need not join Ray.

The process that runs the node listens. Each connection has a thread, which passes one call after
the other to the node's actors (local_frames.py has the frames). RUNTIME, the directory of the
socket, can be entered by this user alone, and so can the socket; a connection of another user's
process is ended at once. There are at most ``_CONNECTIONS_MAX``: further ones wait.
"""

from __future__ import annotations

import importlib
import logging
import os
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rocketray import __version__
from rocketray.actors.client.connection import Connection
from rocketray.actors.client.node_api import NodeApi
from rocketray.actors.client.node_process_api import NodeProcessApi
from rocketray.broker.disks.disks_api import DisksApi
from rocketray.broker.fetching.range_api import PlaceApi, RangeApi
from rocketray.broker.filtering.filter_advice import doubts
from rocketray.broker.filtering.filter_api import FilterApi
from rocketray.broker.named_filters.named_filters_api import NamedFiltersApi
from rocketray.broker.retries.dead_letter_api import DeadLettersApi
from rocketray.broker.shards.shard_api import LookupApi, ShardApi, ShardProcessApi
from rocketray.broker.topics.topics import TopicsApi
from rocketray.errors import ConfigError, NodeElsewhereError, StreamError
from rocketray.filters.subscription import Subscription
from rocketray.groups.groups_api import GroupsApi, SessionsApi
from rocketray.messaging.api.system_api import DelaysApi, TransactionsApi
from rocketray.runtime.calls.endpoint import (
    CallTransport,
    Endpoint,
    InProcess,
    ServedObjects,
    method_of,
)
from rocketray.runtime.calls.local_frames import (
    REPLY_MAX_BYTES,
    REQUEST_MAX_BYTES,
    FrameError,
    peer_user,
    read_frame,
    write_frame,
)
from rocketray.runtime.calls.sent_errors import error_to_json
from rocketray.runtime.calls.value_forms import call_form
from rocketray.runtime.files.paths import local_socket
from rocketray.services.admin.dead_letter_service import DeadLetterService
from rocketray.services.explaining.explanation import Explanation

_LOG = logging.getLogger(__name__)
_CONNECTIONS_MAX = 512  # a client keeps one or two; each has a thread here, and an open file
_HELLO_S = 10.0  # a process that connects and says nothing has one of the connections for so long
_RETRY_S = 1.0  # after a connection that could not be accepted, as for too many open files
_INTERFACES: dict[str, type] = {
    each.__name__: each
    for each in (
        DeadLettersApi,
        DelaysApi,
        DisksApi,
        FilterApi,
        GroupsApi,
        LookupApi,
        NamedFiltersApi,
        NodeApi,
        NodeProcessApi,
        PlaceApi,
        RangeApi,
        SessionsApi,
        ShardApi,
        ShardProcessApi,
        TopicsApi,
        TransactionsApi,
    )
}
Loaded = Callable[[], tuple[type, object]]
_OF_APPS = "rocketray.hosting.apps_service"
"""The service of the layer above, by its name: its ``served_on`` is called at the first call."""


def open_service(data: Path, connection: Connection) -> LocalService | None:
    """Open the socket of the node on *data*; None if it cannot be: then clients join Ray."""
    here: dict[type, object] = {
        NodeProcessApi: NodeProcess(connection),
        DeadLettersApi: DeadLetterService(connection),
    }
    hello = {"data": str(connection.data), "cluster": connection.cluster}
    try:
        later = {"AppsApi": partial(_load, _OF_APPS, connection.cluster)}
        return LocalService(data, connection.transport, here, hello, later)
    except OSError as error:
        _LOG.info("clients have to join Ray, as %s: %s", local_socket(data), error)
        return None


class NodeProcess:
    """The object behind ``NodeProcessApi``; any thread may call."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def has_files(self, disk: str) -> bool:
        return self._connection.transport.has_files(disk)

    def explain(self, message: str, group: str | None, topic: str | None) -> Explanation:
        return self._connection.explain(message, group, topic)

    def doubts(self, topics: Sequence[str], subscription: Subscription) -> list[str]:
        with suppress(NodeElsewhereError):
            directory = self._connection.files("comparing a filter with messages")
            return doubts(directory, topics, subscription)
        return []


class LocalService:
    """The socket of the node on *data*; it listens from its creation until :meth:`close`."""

    def __init__(
        self,
        data: Path,
        transport: CallTransport,
        here: Mapping[type, object],
        hello: Mapping[str, str],
        later: Mapping[str, Loaded] = MappingProxyType({}),
    ) -> None:
        """Answer by the objects that are *here*, by interface, else by the actors of *transport*.

        *hello* says what the node is. Objects that come *later* are loaded when their interface is
        called by its name for the first time.

        Raises:
            OSError: the socket cannot be made, for example because its path is too long.
        """
        self._transport = transport
        self._interfaces, self._later = dict(_INTERFACES), later
        self._are_here: set[type] = set()
        self._objects = ServedObjects()
        self._here = InProcess(self._objects)
        for interface, found in here.items():
            self._serve_here(interface, found)
        self._hello = {"rocketray": __version__, **hello}
        self._free = threading.BoundedSemaphore(_CONNECTIONS_MAX)
        self._is_closed = threading.Event()
        self._socket = _listen(local_socket(data))
        self._links: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True, name="commands").start()

    def close(self) -> None:
        """Accept no connections any more, and end those that there are."""
        self._is_closed.set()
        for link in (self._socket, *self._links):
            with suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _serve_here(self, interface: type, found: object) -> None:
        self._objects.serve(interface, partial(_as_it_is, found))
        self._are_here.add(interface)
        self._interfaces[interface.__name__] = interface

    def _accept(self) -> None:
        while True:
            self._free.acquire()
            try:
                link, _ = self._socket.accept()
            except OSError as error:
                self._free.release()
                if self._is_closed.wait(_RETRY_S):
                    return
                _LOG.warning("a client cannot be served, and has to join Ray: %s", error)
                continue
            self._links.add(link)
            try:
                thread = threading.Thread(target=self._serve, args=[link], daemon=True)
                thread.start()
            except RuntimeError as error:  # too many threads; the next command may find room
                _LOG.warning("a client cannot be served, and has to join Ray: %s", error)
                self._links.discard(link)
                link.close()
                self._free.release()

    def _serve(self, link: socket.socket) -> None:
        try:
            with link:
                self._answer_all(link)
        except (OSError, FrameError) as error:
            _LOG.debug("a client's connection ended: %s", error)
        finally:
            self._links.discard(link)
            self._free.release()

    def _answer_all(self, link: socket.socket) -> None:
        if peer_user(link) != os.getuid():
            return
        link.settimeout(_HELLO_S)
        hello = read_frame(link, REQUEST_MAX_BYTES)
        write_frame(link, self._hello, REPLY_MAX_BYTES)
        if hello is None or hello.get("rocketray") != __version__:
            return
        link.settimeout(None)
        while (request := read_frame(link, REQUEST_MAX_BYTES)) is not None:
            try:
                write_frame(link, self._answer(request), REPLY_MAX_BYTES)
            except FrameError as error:
                refusal = ConfigError(f"the answer is {error}; ask for less, as with --max")
                write_frame(link, {"error": error_to_json(refusal)}, REPLY_MAX_BYTES)

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Make the calls of a request, and return their results, or the error of one."""
        try:
            return {"results": self._results(request)}
        except (StreamError, OSError) as error:
            return {"error": error_to_json(error)}
        except Exception as error:  # noqa: BLE001  # else no log has its traceback
            _LOG.exception("a client's call failed: %r", request.get("method"))
            text = f"the node failed at {request.get('method')!r:.40}: {error!r:.200}; "
            return {"error": error_to_json(StreamError(f"{text}its log has the traceback"))}

    def _results(self, request: dict[str, Any]) -> list[Any]:
        endpoints, method, form = self._asked(request)
        arguments, options = form.read(request.get("given"))
        is_here = endpoints[0].interface in self._are_here
        transport: CallTransport = self._here if is_here else self._transport
        found = transport.call_each(endpoints, method, *arguments, **options)
        return [form.result.write(each) for each in found]

    def _asked(self, request: dict[str, Any]) -> tuple[Sequence[Endpoint[Any]], Any, Any]:
        """Return the endpoints of a request, the method, and the form of its calls.

        Raises:
            ConfigError: there is no such call.
        """
        try:
            name = request["interface"]
            if name not in self._interfaces and name in self._later:
                self._serve_here(*self._later[name]())
            interface = self._interfaces[name]
            method = method_of(interface, request["method"])
            endpoints: list[Endpoint[Any]] = [
                Endpoint(str(actor), interface, tuple(key)) for actor, key in request["to"]
            ]
            endpoints[0]  # raises for none
            return endpoints, method, call_form(method)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise ConfigError(f"the node's process has no such call: {error!r:.200}") from None


def _load(module: str, cluster: str) -> tuple[type, object]:
    """Return the interface and the object of a service of a layer above."""
    found: tuple[type, object] = importlib.import_module(module).served_on(cluster)
    return found


def _as_it_is(found: Any) -> Any:
    return found


def _listen(path: Path) -> socket.socket:
    """Return a socket that listens at *path*, for this user alone."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.unlink(missing_ok=True)  # of a node that was killed: this one has its lock
        listening.bind(str(path))
        path.chmod(0o600)  # its directory is closed to others meanwhile
        listening.listen(_CONNECTIONS_MAX)
    except OSError:
        listening.close()
        raise
    return listening
