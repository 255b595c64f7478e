"""A connection to the fetch service of a disk that finds the service again when it was lost.

The address of the service comes by a call over Ray, which starts the gateway. A call that breaks
off is repeated over a new connection: the spare gateway serves the same address soon. If that
accepts none for ``_SPARE_S``, the link asks for the address again, and waits while the gateway is
started. A call without an answer in time is not repeated.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

import pyarrow as pa
from pyarrow import flight

from rocketray.errors import ShardUnavailableError, StreamError
from rocketray.runtime.calls.endpoint import Endpoint, bulk_wait_s, is_once, method_of
from rocketray.runtime.calls.value_forms import call_form

from .flight_calls import SentBatch, byte_view, call_name, read_bulk, read_result, write_request
from .flight_client import BROKEN_OFF, call_options, error_of, open_client, open_stream, ticket_of
from .read_plan import DiskPlace, FetchService

ResultT = TypeVar("ResultT")
# The worst case of an action: a service that breaks off at the end of each attempt, so 61.5 s. One
# that says nothing costs 20 s, because a call that timed out is not repeated.
_CALL_S = 20.0  # of an action; a bulk call has the time that it waits, and the grace
_GRACE_S = 10.0  # for an answer on its way: 4 MiB at 3.4 Mbit/s
_ATTEMPTS = 3  # without those that a spare is waited for
_SPARE_S = 1.5  # a spare runs already, and only has to take the lock and to listen
_AGAIN_S = 0.05


class ServiceFinder(Protocol):
    """Finds the fetch service of a disk; see ``PlaceApi``."""

    def place(self) -> DiskPlace:
        """Return the place of the disk, with its service."""


class FlightLink:
    """The link of one client: a ``Caller``; any thread may call.

    All calls raise ``ShardUnavailableError`` if the service does not answer, and the errors of the
    service: see sent_errors.py.
    """

    def __init__(self, finder: ServiceFinder, compression: str | None = None) -> None:
        """Connect with the first call; *compression* is that of bulk answers: "lz4" or "zstd"."""
        self._finder = finder
        self._compression = compression
        self._lock = threading.Lock()
        self._service: FetchService | None = None
        self._open: _Open | None = None
        self._answered: FetchService | None = None  # which has answered a call

    def call(self, endpoint: Endpoint[Any], method: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of the endpoint's interface, whatever its actor; see ``Caller``.

        Raises:
            InvalidMessageError: this is no answer.
        """
        declared = method_of(endpoint.interface, method)
        assert not is_once(declared), "a call that breaks off is repeated"
        form, name = call_form(declared), call_name(endpoint.interface, method)
        wait_s = bulk_wait_s(declared)
        given = form.write(arguments, options)
        if wait_s is None:
            sent, *beside = self._call(partial(_act, name, write_request(given)))
            text = bytes(sent)
        else:
            ticket = ticket_of(name, write_request(given, self._compression))
            text, beside = self._call(partial(_stream, name, ticket, wait_s + _GRACE_S))
        return read_result(name, form.result, text, beside)

    def _call(self, run: Callable[[_Open], ResultT]) -> ResultT:
        attempts, broken_s = _ATTEMPTS, None
        while True:
            link, attempts = self._connect(), attempts - 1
            try:
                result = run(link)
            except flight.FlightServerError as error:
                self._has_answered(link)
                raise error_of(error) or _failed(link.service, error) from None
            except (*BROKEN_OFF, flight.FlightUnauthenticatedError) as error:
                broken_s = broken_s or time.monotonic()
                if self._may_have_a_spare(link, error) and time.monotonic() < broken_s + _SPARE_S:
                    self._forget(link, has_moved=False)
                    attempts += 1
                    # At once the first time: perhaps only the connection was lost.
                    time.sleep(0 if link.has_answered else _AGAIN_S)
                    continue
                # No spare has come: a question for the address starts a gateway.
                self._answered = None
                self._forget(link, has_moved=isinstance(error, flight.FlightUnauthenticatedError))
                if attempts == 0 or isinstance(error, flight.FlightTimedOutError):
                    raise _unavailable(link.service, error) from error
            except pa.ArrowException as error:
                raise _failed(link.service, error) from None
            else:
                self._has_answered(link)
                return result

    def _has_answered(self, link: _Open) -> None:
        link.has_answered, self._answered = True, link.service

    def _may_have_a_spare(self, link: _Open, error: Exception) -> bool:
        """Return whether a service that answered before has ended, as far as is known."""
        has_ended = isinstance(error, flight.FlightUnavailableError | flight.FlightInternalError)
        return has_ended and self._answered == link.service

    def _connect(self) -> _Open:
        # Held while the gateway is started: all threads of a client wait for the same one.
        with self._lock:
            if self._open is None:
                self._service = service = self._service or self._finder.place().service
                assert service is not None
                self._open = _Open(service, open_client(service))
            return self._open

    def _forget(self, link: _Open, *, has_moved: bool) -> None:
        """Connect again with the next call; other calls may end over *link*."""
        with self._lock:
            if self._open is link:
                self._open = None
                if has_moved or self._answered != link.service:
                    self._service = None


@dataclass(slots=True)
class _Open:
    service: FetchService
    client: flight.FlightClient
    has_answered: bool = False


def _act(name: str, request: bytes, link: _Open) -> list[memoryview]:
    options = call_options(link.service, _CALL_S)
    results = link.client.do_action(flight.Action(name, request), options)
    return [byte_view(result.body) for result in results]


def _stream(
    name: str, ticket: flight.Ticket, timeout_s: float, link: _Open
) -> tuple[bytes, list[memoryview]]:
    reader = open_stream(link.client, ticket, call_options(link.service, timeout_s))
    return read_bulk(name, _batches(reader))


def _batches(reader: flight.FlightStreamReader) -> Iterator[SentBatch]:
    for chunk in reader:
        metadata = chunk.app_metadata
        yield chunk.data, None if metadata is None else metadata.to_pybytes()


def _failed(service: FetchService, error: Exception) -> StreamError:
    """Return the error of a call that Flight itself could not complete."""
    reason, _, _ = str(error).partition(". Detail:")  # a traceback follows
    return StreamError(
        f"a call to the fetch service at {service.host} port {service.port} failed: {reason:.500}"
    )


def _unavailable(service: FetchService, error: Exception) -> ShardUnavailableError:
    what = f"the fetch service at {service.host} port {service.port}"
    return ShardUnavailableError(what, f"it does not answer: {error}")
