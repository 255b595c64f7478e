"""The long-poll thread of a member on another node, and the replies that it received.

Invariants
  1. Replies are taken in the order of arrival. At most ``_REPLIES_MAX`` wait here, and one more
     until there is room.
  2. A reply without news is dropped: an idle member is not woken.
  3. A failed call is repeated, and asks for the same reply. The thread ends when it is closed, or
     with an error as the last reply: the member never waits in vain.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading

from rocketray.errors import ShardUnavailableError, StreamError, UnknownMemberError

from .remote_calls import POLL_MAX_S, GatewayApi, PollReply

__all__ = ["NOTHING", "Arrived", "LongPoll"]

_LOG = logging.getLogger(__name__)
LONG_POLL_S = POLL_MAX_S
_REPLIES_MAX = 2
_RETRY_S = 1.0
_JOINING_S = 0.01

Arrived = tuple[str, PollReply | StreamError]
"""A reply or an error, and the name of the proxy that it is from; "" to wake the member."""

NOTHING: Arrived = "", PollReply(0, [], frozenset())


class LongPoll:
    """One thread brings replies, one takes them; any may call the others."""

    def __init__(self, gateway: GatewayApi, name: str) -> None:
        """Prepare to poll the proxy *name*."""
        self._gateway = gateway
        self._name = name
        self._replies: queue.Queue[Arrived] = queue.Queue(_REPLIES_MAX)
        self._arriving: tuple[Arrived, ...] = ()  # waits for room
        self._asked = "", 0  # the proxy, and its last reply that arrived
        self._told: tuple[str, frozenset[int]] | None = (
            None  # the last assignment that was passed to the member
        )
        self._gone = ""  # the proxy that is gone, until the member joined again
        self._is_over = False
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._fetch, daemon=True, name="long poll")

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def follow(self, name: str) -> None:
        """Poll the proxy of that name from now on."""
        self._name = name

    def take(self, timeout_s: float) -> Arrived | None:
        """Return the next reply; None after *timeout_s*."""
        try:
            return self._replies.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def waiting(self) -> list[Arrived]:
        """Return all replies that are not taken yet."""
        with self._replies.mutex:
            return [*self._replies.queue, *self._arriving]

    def wake(self) -> None:
        """End the wait of the thread that takes."""
        with contextlib.suppress(queue.Full):  # then no thread waits
            self._replies.put_nowait(NOTHING)

    def empty(self) -> None:
        """Drop the replies that are not taken."""
        try:
            while True:
                self._replies.get_nowait()
        except queue.Empty:
            pass

    def close(self) -> None:
        """Stop polling; the thread ends with its last reply."""
        self._closed.set()

    def is_running(self) -> bool:
        """Return whether the thread has not ended yet."""
        return self._thread.is_alive()

    def step(self, timeout_s: float = 0.0) -> None:
        """Run one turn of the thread: poll once, for up to *timeout_s*."""
        name = self._name
        if name == self._gone:
            self._closed.wait(_JOINING_S)
            return
        received = self._asked[1] if name == self._asked[0] else 0
        reply: PollReply | StreamError
        try:
            reply = self._gateway.poll(name, timeout_s, received)
        except (ShardUnavailableError, OSError) as error:
            _LOG.warning("the gateway does not answer, trying again: %s", error)
            self._closed.wait(_RETRY_S)
            return
        except UnknownMemberError as error:
            self._gone, reply = name, error
        except StreamError as error:
            self._is_over, reply = True, error
        except Exception as error:  # noqa: BLE001  # else the thread ends without a trace
            self._is_over = True
            reply = StreamError(f"the gateway failed at a long poll: {error!r}")
        if isinstance(reply, PollReply):
            self._asked = name, reply.number
            if not reply.frames and not reply.revoked and (name, reply.assignment) == self._told:
                return
            self._told = name, reply.assignment
        self._put(name, reply)

    def _fetch(self) -> None:
        while not self._closed.is_set() and not self._is_over:
            self.step(LONG_POLL_S)

    def _put(self, name: str, reply: PollReply | StreamError) -> None:
        self._arriving = ((name, reply),)
        while not self._closed.is_set():
            try:
                self._replies.put((name, reply), timeout=_RETRY_S)
            except queue.Full:
                continue
            break
        self._arriving = ()
