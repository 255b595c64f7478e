"""The Arrow Flight server of a disk: calls by name, each with the token of the service.

A ticket is the name of a stream or of a bulk call, a blank, and a request; an action has a name and
a request of its own. flight_calls.py says what is in them. Each waiting call has a thread of
gRPC's, which begins as many as there are calls.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyarrow import flight

from rocketray.errors import ConfigError, StreamError
from rocketray.runtime.calls.sent_errors import SentError, write_error

from .flight_calls import VALUES, FlightCalls
from .service_identity import ServiceIdentity

_LOG = logging.getLogger(__name__)


class FlightServer(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """Serves calls; it listens from its creation on."""

    def __init__(self, identity: ServiceIdentity, calls: FlightCalls) -> None:
        """Begin to listen.

        Raises:
            OSError: the address is not of this machine, or another process has the port.
        """
        self._calls = calls
        host = f"[{identity.host}]" if ":" in identity.host else identity.host
        scheme = "grpc+tls" if identity.certificate else "grpc"
        secrets = [(identity.certificate.encode(), identity.key.encode())]
        try:
            super().__init__(
                f"{scheme}://{host}:{identity.port}",
                middleware={"token": _TokenCheck(identity.token)},
                tls_certificates=secrets if identity.certificate else None,
            )
        except pa.ArrowException as error:  # it says no more than that
            where = f"{identity.host} port {identity.port or 'of any number'}"
            raise OSError(f"the fetch service cannot listen on {where}: {error}") from error

    def do_get(self, _: Any, ticket: flight.Ticket) -> flight.FlightDataStream:
        """Answer a call of a stream, whose batches are made as the client takes them."""
        called, _, request = ticket.ticket.partition(b" ")
        name = called.decode(errors="replace")
        stream = self._calls.streams.get(name)
        if stream is not None:
            return _answered(name, stream, request)
        found = _answered(name, self._calls.find(name), request)
        options = pa.ipc.IpcWriteOptions(compression=found.compression)
        return flight.GeneratorStream(VALUES, found.batches(), options=options)

    def do_action(self, _: Any, action: flight.Action) -> Iterator[flight.Result]:
        """Answer an action with the text of the answer, and the values beside it."""
        name = action.type
        found = _answered(name, self._calls.find(name), action.body.to_pybytes())
        return map(flight.Result, (found.text, *found.beside))

    def do_put(self, _: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Take an upload, and confirm it."""
        called, _, request = descriptor.command.partition(b" ")
        name = called.decode(errors="replace")
        upload = self._calls.uploads.get(name)
        call = None if upload is None else partial(upload, values=_values(reader))
        _answered(name, call, request)
        writer.write(pa.py_buffer(b"stored"))


class _TokenCheck(flight.ServerMiddlewareFactory):  # type: ignore[misc]  # as above
    """Refuses calls without the token."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._wanted = f"Bearer {token}".encode()

    def start_call(self, _: Any, headers: Mapping[str, Sequence[Any]]) -> None:
        shown = headers.get("authorization", [])
        # In constant time: the time of a refusal must not tell how much of a token is right.
        if len(shown) != 1 or not hmac.compare_digest(str(shown[0]).encode(), self._wanted):
            raise flight.FlightUnauthenticatedError("the token is not that of this service")


def told(error: SentError) -> flight.FlightServerError:
    """Return the error that tells the client of *error*: Flight adds to the text of its own."""
    return flight.FlightServerError(str(error), write_error(error))


def _values(reader: Any) -> Iterator[memoryview]:
    for chunk in reader:
        for value in chunk.data.column(0):
            yield memoryview(value.as_buffer())


def _answered(name: str, call: Callable[[bytes], Any] | None, request: bytes) -> Any:
    if call is None:
        text = f"the fetch service has no call {name[:40]!r}: it is of another version"
        raise told(ConfigError(text))
    try:
        return call(request)
    except (StreamError, OSError) as error:
        raise told(error) from None
    except Exception as error:  # noqa: BLE001  # else no log has its traceback
        _LOG.exception("the fetch service failed at a call of %r", name)
        text = f"the fetch service failed at {name!r}: {error!r:.200}; its log has the traceback"
        raise told(StreamError(text)) from None
