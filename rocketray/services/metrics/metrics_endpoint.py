"""An HTTP endpoint that Prometheus scrapes: ``GET /metrics``, on loopback, or with token and TLS.

The node is asked at each scrape; scrapes within a second get the same answer, so that several
Prometheus servers cost no more than one. If the node does not answer, neither does the endpoint:
it says why, with the status 503. So many connections are served at a time; one more is told so,
and closed.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric

from rocketray.errors import ConfigError, StreamError

_LOG = logging.getLogger(__name__)
_KEPT_S = 1.0
_REQUEST_S = 10.0  # a client that neither sends nor reads holds one of the connections for so long
_PATH = "/metrics"
_TOKEN_MAX_BYTES = 4096  # another file by mistake, even an endless one, is not read whole
_CONNECTIONS_MAX = 16  # a few servers that scrape, and people who look
_BUSY = (
    b"HTTP/1.0 503 Service Unavailable\r\nContent-Type: text/plain\r\nRetry-After: 1\r\n\r\n"
    b"%d connections are open, which is the limit; try again\n" % _CONNECTIONS_MAX
)
_TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Access:
    """Where the endpoint listens, and what a client has to show.

    ``token_file`` has the token that Prometheus sends as its ``credentials_file`` says;
    ``certificate`` and ``key`` are PEM files. The command's options for these three begin with
    *prefix*, for errors.
    """

    host: str = "127.0.0.1"
    port: int = 5557  # as RocketMQ's exporter
    token_file: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    prefix: str = "--"

    def check(self) -> None:
        """Raise :class:`ConfigError` if others could read it without a token, or on the way."""
        if (self.certificate is None) != (self.key is None):
            raise ConfigError(
                "TLS needs a certificate and its key: give both "
                f"{self.prefix}tls-certificate and {self.prefix}tls-key"
            )
        try:
            is_loopback = ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            raise ConfigError(
                f"the host {self.host!r} is not an IP address; give that of an interface of this "
                "machine"
            ) from None
        if not is_loopback and (self.token_file is None or self.certificate is None):
            raise ConfigError(
                f"{self.host} can be reached from other machines, so the metrics need a token and "
                f"TLS there: give {self.prefix}token-file, {self.prefix}tls-certificate and "
                f"{self.prefix}tls-key"
            )

    def token(self) -> bytes | None:
        """Return the token; raise :class:`ConfigError` if the file has none."""
        if self.token_file is None:
            return None
        with self.token_file.open("rb") as file:
            token = file.read(_TOKEN_MAX_BYTES).strip()
        if not token:
            raise ConfigError(f"{self.token_file} has no token; write one into it")
        return token

    def tls(self) -> ssl.SSLContext | None:
        """Return the context of TLS; raise :class:`ConfigError` if the files are not for it."""
        if self.certificate is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self.certificate, self.key)
        except ssl.SSLError as error:
            raise ConfigError(
                f"{self.certificate} and {self.key} are not a certificate and its key, in PEM: "
                f"{error}"
            ) from None
        return context


class _Server(ThreadingHTTPServer):
    """A server with a limit of connections, each of which has a thread."""

    daemon_threads = True  # the end of the endpoint waits for no client

    def __init__(self, place: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._free = threading.BoundedSemaphore(_CONNECTIONS_MAX)
        self.address_family = socket.AF_INET6 if ":" in place[0] else socket.AF_INET
        super().__init__(place, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            try:
                super().process_request(request, client_address)
            except BaseException:  # there is no thread for it
                self._free.release()
                raise
            return
        _LOG.warning("refused %s: %d connections are open", client_address[0], _CONNECTIONS_MAX)
        if not isinstance(request, ssl.SSLSocket):  # else its handshake would have to be awaited
            with suppress(OSError):
                request.sendall(_BUSY)
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - its names
        is_network = isinstance(sys.exception(), OSError)
        level = logging.DEBUG if is_network else logging.ERROR
        _LOG.log(level, "a request of %s failed", client_address[0], exc_info=True)


class MetricsEndpoint:
    """Serves what *read* returns, in threads of its own."""

    def __init__(self, read: Callable[[], list[Metric]], access: Access) -> None:
        """Listen.

        Raises:
            ConfigError: the access is not safe, or the port is taken. OSError: a file cannot be
                read.
        """
        access.check()
        self._read = read
        self._token = access.token()
        self._lock = threading.Lock()
        self._kept: list[Metric] = []
        self._kept_s = -_KEPT_S
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            timeout = _REQUEST_S

            def do_GET(self) -> None:
                endpoint.answer(self)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name
                _LOG.debug(format, *args)

        context = access.tls()
        try:
            self._server = _Server((access.host, access.port), Handler)
        except OSError as error:
            raise ConfigError(
                f"the metrics cannot be served at {access.host}, port {access.port}: "
                f"{error.strerror}; give another address or port"
            ) from None
        if context is not None:
            # Without a handshake in ``accept``: a client that is silent would hold up all others.
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.port: int = self._server.server_address[1]
        """The port, also if any was asked for."""
        host = f"[{access.host}]" if ":" in access.host else access.host
        scheme = "http" if access.certificate is None else "https"
        self.url = f"{scheme}://{host}:{self.port}{_PATH}"
        """The address that Prometheus scrapes."""
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="metrics", daemon=True
        )
        self._thread.start()

    def collect(self) -> list[Metric]:
        """Return the metrics, as prometheus_client asks for them; at most a second old."""
        with self._lock:
            if time.monotonic() - self._kept_s >= _KEPT_S:
                self._kept = self._read()
                self._kept_s = time.monotonic()
            return self._kept

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """Answer one request, in the thread of its connection."""
        if request.path.partition("?")[0] != _PATH:
            _send(request, HTTPStatus.NOT_FOUND, f"the metrics are at {_PATH}\n".encode())
        elif not self._may_read(request.headers.get("Authorization", "")):
            _send(request, HTTPStatus.UNAUTHORIZED, b"give the token of the endpoint\n")
        else:
            registry = CollectorRegistry()
            encode, kind = choose_encoder(request.headers.get("Accept", ""))
            try:
                registry.register(self)
                content = encode(registry)
            except (StreamError, OSError) as error:
                said = f"the node does not answer: {error}\n".encode()
                _send(request, HTTPStatus.SERVICE_UNAVAILABLE, said)
            else:
                _send(request, HTTPStatus.OK, content, kind)

    def close(self) -> None:
        """Listen no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _may_read(self, given: str) -> bool:
        if self._token is None:
            return True
        wanted = b"Bearer " + self._token
        return hmac.compare_digest(given.encode("utf-8", "replace"), wanted)


def _send(
    request: BaseHTTPRequestHandler, status: HTTPStatus, content: bytes, kind: str = _TEXT
) -> None:
    request.send_response(status)
    request.send_header("Content-Type", kind)
    request.send_header("Content-Length", str(len(content)))
    if status is HTTPStatus.UNAUTHORIZED:
        request.send_header("WWW-Authenticate", "Bearer")
    request.end_headers()
    request.wfile.write(content)
