"""The one port of a disk's gateway: its Arrow Flight server, opened when it is needed.

Of the two processes of a gateway one has it, and the other one takes over when that ends
(serving_turn.py).

It listens on the address that Ray has for the machine: with TLS, or without on loopback. It has the
same port, token and certificate after its process was started again (service_identity.py). The port
is any free one, unless the operator has chosen it.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

from rocketray.errors import ShardUnavailableError
from rocketray.runtime.files.fetch_failure import note_failure
from rocketray.runtime.files.home import Home
from rocketray.runtime.files.paths import fetch_service_file

from .flight_calls import FlightCalls
from .flight_server import FlightServer
from .read_plan import DiskPlace, FetchService
from .service_identity import (
    ServiceIdentity,
    chosen_port,
    keep_service,
    kept_service,
    settle_service,
)
from .serving_turn import ServingTurn

_LOG = logging.getLogger(__name__)
_RETRY_AFTER_MS = 200  # the other process has the lock, and is about to listen


class FlightService:
    """The service of the disk with that *home*; any thread may call."""

    def __init__(
        self,
        home: Home,
        host: str,
        calls: FlightCalls,
        *,
        has_tls: bool | None = None,
        turn: ServingTurn | None = None,
    ) -> None:
        """Open nothing yet; *host* is the IP address to listen on: without TLS only on loopback.

        Without a *turn* no other process may have the port.
        """
        self._home = home
        self._host = host
        self._calls = calls
        self._has_tls = not ip_address(host).is_loopback if has_tls is None else has_tls
        self._turn = turn
        self._lock = threading.Lock()  # also while a server begins: two would want one port
        self._server: FlightServer | None = None
        self._place: DiskPlace | None = None

    def open(self) -> DiskPlace:
        """Return the place of the disk with its service, which listens from the first call on.

        Raises:
            OSError: the service cannot listen; the disk's agent reports it meanwhile.
            ShardUnavailableError: another process has the turn, and does not listen yet.
        """
        with self._lock:
            if self._turn is not None and not self._turn.take():
                return self._place_of_other()
            if self._place is None:
                try:
                    self._place = self._listen()
                except OSError as error:
                    note_failure(self._home.directory(), str(error))
                    raise
                note_failure(self._home.directory(), "")
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

    def _place_of_other(self) -> DiskPlace:
        data = self._home.directory()
        kept = kept_service(data)
        if kept is None or not kept.port:
            raise ShardUnavailableError(
                f"the fetch service of {data}", "it starts", _RETRY_AFTER_MS
            )
        return self._place_with(data, kept)

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
            # Another process has taken the port since: clients ask for the new one.
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
        _LOG.info("the fetch service of %s listens on %s port %d", data, self._host, identity.port)
        return self._place_with(data, identity)

    def _place_with(self, data: Path, identity: ServiceIdentity) -> DiskPlace:
        service = FetchService(
            identity.host, identity.port, identity.token, identity.certificate.encode()
        )
        return DiskPlace(data, self._home.uuid, self._home.machine, service)
