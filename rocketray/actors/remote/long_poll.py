"""The thread of a member on another node that waits at the gateway, and the replies it brought.

Invariants
  1. Replies are taken in the order in which they were given; ``_REPLIES_MAX`` wait here at most, and
     one more until there is room.
  2. A reply that says nothing new is dropped: an idle member is not woken.
  3. A call that failed is made again, and asks for the same reply. The thread ends when it is
     closed, or with an error that is the last reply: the member never waits for nothing.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading

from rocketray.errors import ShardUnavailableError, StreamError, UnknownMemberError

from .remote_calls import POLL_MAX_S, Gateway, PollReply

__all__ = ["NOTHING", "Arrived", "LongPoll"]

_LOG = logging.getLogger(__name__)
LONG_POLL_S = POLL_MAX_S
_REPLIES_MAX = 2
_RETRY_S = 1.0
_JOINING_S = 0.01

Arrived = tuple[str, PollReply | StreamError]
"""A reply, or what was raised instead, and the stand-in that gave it; "" to wake the member."""

NOTHING: Arrived = "", PollReply(0, [], frozenset())


class LongPoll:
    """One thread brings replies, one takes them; any may call the others."""

    def __init__(self, gateway: Gateway, name: str) -> None:
        """*name* is the stand-in that is asked."""
        self._gateway = gateway
        self._name = name
        self._replies: queue.Queue[Arrived] = queue.Queue(_REPLIES_MAX)
        self._arriving: tuple[Arrived, ...] = ()  # waits for room
        self._asked = "", 0  # the stand-in, and the last reply of its that arrived
        self._told: tuple[str, frozenset[int]] | None = (
            None  # the last assignment that was passed on
        )
        self._gone = ""  # the stand-in that is no more, until the member joined again
        self._is_over = False
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._fetch, daemon=True, name="long poll")

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def follow(self, name: str) -> None:
        """Ask the stand-in of that name from now on."""
        self._name = name

    def take(self, timeout_s: float) -> Arrived | None:
        """The next reply; None when the time is over."""
        try:
            return self._replies.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def waiting(self) -> list[Arrived]:
        """All replies that nobody took yet."""
        with self._replies.mutex:
            return [*self._replies.queue, *self._arriving]

    def wake(self) -> None:
        """End the wait of who takes now."""
        with contextlib.suppress(queue.Full):  # then nobody waits
            self._replies.put_nowait(NOTHING)

    def empty(self) -> None:
        """Drop what nobody took."""
        try:
            while True:
                self._replies.get_nowait()
        except queue.Empty:
            pass

    def close(self) -> None:
        """Ask no more; the thread ends with its last answer."""
        self._closed.set()

    def is_running(self) -> bool:
        """Whether the thread did not end yet."""
        return self._thread.is_alive()

    def step(self, timeout_s: float = 0.0) -> None:
        """One turn of the thread: ask once, for what comes within that time."""
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
        except Exception as error:  # noqa: BLE001  # else the thread ends, and nobody hears why
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
