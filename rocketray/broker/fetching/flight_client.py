"""A client's side of a fetch service: its connection, and its errors.

A connection goes to the machine of the disk itself, whatever proxy the environment names: the
proxies of companies lead out of the network, and one would read the token where there is no TLS.
"""

from __future__ import annotations

from pyarrow import flight

from rocketray.runtime.calls.sent_errors import SentError, read_error
from rocketray.runtime.one_process import not_freed_in_forks

from .read_plan import FetchService

BROKEN_OFF = (
    flight.FlightUnavailableError,
    flight.FlightInternalError,
    flight.FlightCancelledError,
    flight.FlightTimedOutError,
)
"""What a call raises whose service does not answer, or stopped answering."""
_OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1),  # else a new client waits as the last one did
    ("grpc.enable_http_proxy", 0),
    # A stream has no time limit, and its reader sends nothing: without pings it would wait for ever
    # for a machine that vanished. gRPC's servers take one in 5 minutes, and end a connection with
    # more; so it is noticed within six.
    ("grpc.keepalive_time_ms", 310_000),
    ("grpc.http2.ping_timeout_ms", 20_000),
    ("grpc.http2.max_pings_without_data", 0),  # no limit: two, by default
]


def open_client(service: FetchService) -> flight.FlightClient:
    """Return a client of a service; it connects with the first call."""
    host = f"[{service.host}]" if ":" in service.host else service.host
    scheme = "grpc+tls" if service.certificate else "grpc"
    return not_freed_in_forks(
        flight.FlightClient(
            f"{scheme}://{host}:{service.port}",
            tls_root_certs=service.certificate or None,
            generic_options=_OPTIONS,
        )
    )


def open_stream(
    client: flight.FlightClient, ticket: flight.Ticket, options: flight.FlightCallOptions
) -> flight.FlightStreamReader:
    """Return the reader of a stream, which begins."""
    return not_freed_in_forks(client.do_get(ticket, options))


def call_options(service: FetchService, timeout_s: float | None = None) -> flight.FlightCallOptions:
    headers = [(b"authorization", f"Bearer {service.token}".encode())]
    return flight.FlightCallOptions(timeout=timeout_s, headers=headers)


def ticket_of(name: str, request: bytes) -> flight.Ticket:
    return flight.Ticket(name.encode() + b" " + request)


def upload_of(name: str, request: bytes) -> flight.FlightDescriptor:
    return flight.FlightDescriptor.for_command(name.encode() + b" " + request)


def error_of(error: flight.FlightServerError) -> SentError | None:
    """Return the error that the service raised; None if it is Flight's own."""
    return read_error(error.extra_info)
