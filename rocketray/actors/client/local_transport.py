"""The transport of calls over a node's own socket: for clients on its machine, without Ray.

A process that joins Ray needs two seconds for that, a call over the socket a millisecond. The
process that runs the node answers (cluster/local_service.py): it passes calls on to the actors.

Its directory, RUNTIME, can be entered by the node's user alone, and both sides check the user of
the other one. Where anything is unusual, there is no transport, and the caller joins Ray.
"""

from __future__ import annotations

import socket
import stat
import threading
import weakref
from collections.abc import Callable, Sequence
from os import getuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate

from rocketray import __version__
from rocketray.errors import ActorError, NodeNotRunningError
from rocketray.runtime.calls.endpoint import (
    Arguments,
    Endpoint,
    InterfaceT,
    ResultT,
    client_of,
    method_of,
    run_in_thread,
)
from rocketray.runtime.calls.local_frames import (
    REPLY_MAX_BYTES,
    REQUEST_MAX_BYTES,
    FrameError,
    peer_user,
    read_frame,
    write_frame,
)
from rocketray.runtime.calls.sent_errors import error_from_json
from rocketray.runtime.calls.value_forms import call_form
from rocketray.runtime.files.paths import local_socket
from rocketray.runtime.files.private_files import is_own_directory, open_to_others
from rocketray.runtime.one_process import OfOneProcess

from .node_process_api import NODE_PROCESS

if TYPE_CHECKING:
    from rocketray.messaging.producers.producer import NodeProducer

_HELLO_S = 2.0  # then the caller joins Ray, which takes as long: a busy process is not waited for
_HELLO_MAX_BYTES = 64 * 1024  # of a release, a directory and a name


def open_local(data: Path, silence_max_s: float | None = None) -> LocalTransport | None:
    """Return the transport to the node on *data*; None if this process has to join Ray for it.

    A node's process that takes longer than *silence_max_s* for an answer counts as ended.

    Raises:
        ActorError: the node is of another release.
    """
    path = local_socket(data)
    if not _is_own_socket(path):
        return None
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        hello = _greet(link, path)
    except (OSError, FrameError):  # the node ends, or its process is too busy
        hello = None
    if hello is None:
        link.close()
        return None
    link.settimeout(silence_max_s)
    if hello.get("rocketray") != __version__:
        link.close()
        raise ActorError(
            f"the node on {data} is of release {hello.get('rocketray')!r:.40}, and this process has "
            f"{__version__!r}; use that release here, or start the node again with this one: "
            f"rocketray start --data {data}"
        )
    return LocalTransport(data, link, hello)


def _greet(link: socket.socket, path: Path) -> dict[str, Any] | None:
    """Connect, and return the hello of the node's process; None if it is another user's."""
    link.settimeout(_HELLO_S)
    link.connect(str(path))
    if peer_user(link) != getuid():
        return None
    write_frame(link, {"rocketray": __version__}, _HELLO_MAX_BYTES)
    return read_frame(link, _HELLO_MAX_BYTES)


def _is_own_socket(path: Path) -> bool:
    """Return whether only this user can have created the socket."""
    directory = path.parent
    if not is_own_directory(directory) or open_to_others(directory):
        return False
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISSOCK(found.st_mode) and found.st_uid == getuid()


class LocalTransport(OfOneProcess, what="client"):
    """One connection to a node's process; safe to use from several threads, one call at a time."""

    def __init__(self, data: Path, link: socket.socket, hello: dict[str, Any]) -> None:
        """Take a *link* on which the node's *hello* was read."""
        self._data = data
        self._link = link
        # Of a program that closes nothing, the socket ends with its last user, without a warning.
        weakref.finalize(self, link.close)
        self._lock = threading.Lock()
        self.coordinator_data = Path(str(hello.get("data", data)))
        self.cluster = str(hello.get("cluster", ""))

    def call(self, endpoint: Endpoint[Any], method: str, *arguments: Any, **options: Any) -> Any:
        declared = method_of(endpoint.interface, method)
        [result] = self._call([endpoint], declared, arguments, options)
        return result

    def call_each(
        self,
        endpoints: Sequence[Endpoint[InterfaceT]],
        method: Callable[Concatenate[InterfaceT, Arguments], ResultT],
        *arguments: Arguments.args,
        **options: Arguments.kwargs,
    ) -> list[ResultT]:
        return self._call(endpoints, method, arguments, options) if endpoints else []

    def in_background(self, run: Callable[[], None], /) -> None:
        run_in_thread(run)

    def is_local(self, disk: str) -> bool:
        return client_of(self, NODE_PROCESS).has_files(disk)

    def has_files(self, disk: str) -> bool:
        """Return the same as :meth:`is_local`: a process on the machine can read the files."""
        return self.is_local(disk)

    def keep(self, _: NodeProducer) -> None:
        """Do nothing: a call shows that the node has ended."""

    def close(self) -> None:
        self._link.close()

    def _call(
        self,
        endpoints: Sequence[Endpoint[Any]],
        method: Callable[..., Any],
        arguments: Sequence[Any],
        options: dict[str, Any],
    ) -> list[Any]:
        form = call_form(method)
        request = {
            "interface": endpoints[0].interface.__name__,
            "method": method.__name__,
            "to": [[each.actor, each.key] for each in endpoints],
            "given": form.write(arguments, options),
        }
        with self._lock:
            answer = self._exchange(request)
        if "error" in answer:
            raise error_from_json(answer["error"])
        try:
            return [form.result.read(each) for each in answer["results"]]
        except (LookupError, TypeError, ValueError) as error:
            raise ActorError(
                f"the node on {self._data} answered {method.__name__} in another form than this "
                f"release's ({error}); start the node again: rocketray start --data {self._data}"
            ) from None

    def _exchange(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request, and return the answer.

        Raises:
            NodeNotRunningError: the node ended meanwhile. ActorError: the request is too large.
        """
        try:
            write_frame(self._link, request, REQUEST_MAX_BYTES)
            answer = read_frame(self._link, REPLY_MAX_BYTES)
        except OSError as error:  # a timeout as well: the process is silent for too long
            raise self._ended(str(error)) from error
        except FrameError as error:
            raise ActorError(f"a call to the node on {self._data} failed: {error}") from None
        if answer is None:
            raise self._ended("it ended the connection")
        return answer

    def _ended(self, why: str) -> NodeNotRunningError:
        return NodeNotRunningError(
            f"the node on {self._data} has ended, and did not answer before ({why}); start it "
            f"again with: rocketray start --data {self._data}"
        )
