"""Whether a server of Ray still says anything: a machine that is too busy may let it do nothing.

The kernel takes a connection for a server that stands still, so a connection alone proves little. A
server of gRPC begins each one with a frame of HTTP/2, as soon as it can.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

_CONNECT_TIMEOUT_S = 2.0
"""So long one call takes at worst, every ``_INTERVAL_S``."""
_INTERVAL_S = 5.0
"""So much later a server that has answered is asked again."""
_LOOK_MAX_S = 10.0  # see silent_s()
# The preface of HTTP/2 (RFC 9113, 3.4), and a SETTINGS frame: no bytes, type 4, no flags, stream 0.
_BEGIN = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"


class ServerProbe:
    """A connection to a server, which is kept until it says something; for one thread."""

    def __init__(self, address: str, clock_s: Callable[[], float] = time.monotonic) -> None:
        """Ask the server at *address*, HOST:PORT."""
        host, _, port = address.rpartition(":")
        self._host, self._port = host.strip("[]"), port
        self._clock_s = clock_s
        self._connection: socket.socket | None = None
        self._asked_s = self._looked_s = float("-inf")
        self._silent_s = 0.0

    def silent_s(self) -> float:
        """Return for how many seconds a connection has been open on which the server said nothing.

        0 without one: the server has answered, or takes no connection, which others notice. Call
        this every second: the time between two calls counts as 10 s at most, because this process
        may have stood still, and the server with it.
        """
        now_s = self._clock_s()
        if self._connection is None and now_s - self._asked_s >= _INTERVAL_S:
            self._asked_s = self._looked_s = now_s
            self._silent_s = 0.0
            self._connection = self._connected()
        if self._connection is None:
            return 0.0
        self._silent_s += min(now_s - self._looked_s, _LOOK_MAX_S)
        self._looked_s = now_s
        try:
            self._connection.recv(1)  # a frame; or an end: a server with TLS expects another begin
        except BlockingIOError:
            return self._silent_s
        except OSError:
            pass  # it has ended: the next connection fails
        self.close()
        return 0.0

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __del__(self) -> None:
        """Close the connection of a watch that is over."""
        self.close()

    def _connected(self) -> socket.socket | None:
        try:
            place = self._host, int(self._port)
            connection = socket.create_connection(place, _CONNECT_TIMEOUT_S)
        except OSError:
            return None
        connection.settimeout(0.0)
        try:
            connection.send(_BEGIN)
        except OSError:
            connection.close()
            return None
        return connection
