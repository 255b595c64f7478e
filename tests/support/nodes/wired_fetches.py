"""Fetches that pass as bytes, as over the network: for members and sessions in one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pyarrow as pa
from pyarrow import flight

from rocketray.broker.fetching.flight_calls import (
    VALUES,
    FlightCalls,
    Served,
    call_name,
    read_bulk,
    read_result,
    write_request,
)
from rocketray.broker.fetching.flight_client import error_of
from rocketray.broker.fetching.flight_server import told
from rocketray.errors import StreamError
from rocketray.messaging.remote.fetch_api import FETCHES, FetchApi
from rocketray.runtime.calls.endpoint import Endpoint, client_of, method_of
from rocketray.runtime.calls.value_forms import call_form

_T = TypeVar("_T")


class WiredLink:
    """A link to sessions of this process, which may be others at each call; see ``FlightLink``."""

    def __init__(self, find: Callable[[], FetchApi]) -> None:
        self._find = find

    def call(self, endpoint: Endpoint[Any], method: str, *arguments: Any, **options: Any) -> Any:
        form = call_form(method_of(endpoint.interface, method))
        name = call_name(endpoint.interface, method)
        request = write_request(form.write(arguments, options))
        answer = FlightCalls([Served(endpoint.interface, self._find())]).find(name)
        assert answer is not None
        batches = _told(lambda: answer(request)).batches()
        passed = ((_sent(batch), metadata) for batch, metadata in batches)
        return read_result(name, form.result, *read_bulk(name, passed))


def wired(find: Callable[[], FetchApi]) -> FetchApi:
    """The calls of a member to those sessions."""
    return client_of(WiredLink(find), FETCHES)


def _sent(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.ipc.read_record_batch(batch.serialize(), VALUES)


def _told(call: Callable[[], _T]) -> _T:
    try:
        return call()
    except (StreamError, OSError) as error:
        sent: flight.FlightServerError = told(error)
        again = error_of(sent)
        assert again is not None
        raise again from None
