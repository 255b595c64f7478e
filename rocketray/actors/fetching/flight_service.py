"""The one port of a disk's gateway: its Arrow Flight server, opened when it is needed.

It listens on the address that Ray has for the machine: with TLS, or without on loopback. It has the
same port, token and certificate after its process was started again (service_identity.py). The port
is any free one, unless the operator has chosen it.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from ipaddress import ip_address

from rocketray.actors.files.home import Home
from rocketray.actors.files.paths import fetch_service_file

from .flight_server import FlightCalls, FlightServer
from .read_plan import DiskPlace, FetchService
from .service_identity import chosen_port, keep_service, settle_service

__all__ = ["FlightService"]

_LOG = logging.getLogger(__name__)


class FlightService:
    """The service of the disk with that *home*; any thread may call."""

    def __init__(
        self, home: Home, host: str, calls: FlightCalls, *, has_tls: bool | None = None
    ) -> None:
        """Open nothing yet; *host* is the IP address to listen on: without TLS only on loopback."""
        self._home = home
        self._host = host
        self._calls = calls
        self._has_tls = not ip_address(host).is_loopback if has_tls is None else has_tls
        self._lock = threading.Lock()
        self._server: FlightServer | None = None
        self._place: DiskPlace | None = None

    def open(self) -> DiskPlace:
        """Return the place of the disk with its service, which listens from the first call on.

        Raises:
            OSError: the service cannot listen.
        """
        with self._lock:
            self._place = self._place or self._listen()
            return self._place

    def open_again(self) -> None:
        """Open the service if a process before this one had opened it.

        If it cannot listen now, the next call of :meth:`open` raises, or opens it.
        """
        data = self._home.directory()
        if not fetch_service_file(data).exists():
            return
        try:
            self.open()
        except OSError as error:
            _LOG.warning("the fetch service of %s cannot listen again yet: %s", data, error)

    def close(self) -> None:
        """End the service; return when the calls that it answers have ended."""
        with self._lock:
            if self._server is not None:
                self._server.shutdown()
            self._server = self._place = None

    def _listen(self) -> DiskPlace:
        data = self._home.directory()
        identity = settle_service(data, self._host, has_tls=self._has_tls)
        port = chosen_port(data)
        try:
            identity = replace(identity, port=port or identity.port)
            self._server = FlightServer(identity, self._calls)
        except OSError as error:
            if port:
                advice = "free the port, or start the node with another --fetch-port"
                raise OSError(f"{error}; {advice}") from error
            # Another process has taken the port since.
            identity = replace(identity, port=0)
            self._server = FlightServer(identity, self._calls)
        identity = replace(identity, port=self._server.port)
        try:
            keep_service(data, identity)
        except OSError as error:
            _LOG.warning(
                "the fetch service of %s will have another address and token when its process is "
                "started again, as this cannot be kept: %s",
                data, error,
            )  # fmt: skip
        service = FetchService(
            self._host, identity.port, identity.token, identity.certificate.encode()
        )
        _LOG.info("the fetch service of %s listens on %s port %d", data, self._host, identity.port)
        return DiskPlace(data, self._home.uuid, self._home.machine, service)
