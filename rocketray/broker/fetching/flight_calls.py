"""Calls at the fetch service of a disk as bytes: the way of calls between machines.

    name      Interface.method
    request   {"rocketray": release, "given": arguments, "compression": of a bulk answer}
    answer    the result, and beside it the binary values that it names (call_text.py)

The answer of an action is its results: the text, and each value beside it. That of a method that is
declared ``endpoint.bulk`` is a stream: a batch of one row for each value; and one without rows, the
last, whose metadata is the text. An answer without that one broke off.

Arguments and results have the forms of their types (value_forms.py), which may differ from release
to release. So a request names the client's release, for the error if its arguments do not fit. It
has a limit, and so have the names, numbers and lengths in it, as their types say (base/limits.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from pyarrow import flight

from rocketray import __version__
from rocketray.errors import ConfigError, InvalidMessageError
from rocketray.runtime.calls.call_text import read_text, write_text
from rocketray.runtime.calls.endpoint import method_of
from rocketray.runtime.calls.value_forms import CallForm, ValueForm, call_form

SentBatch = tuple[pa.RecordBatch, bytes | None]
REQUEST_MAX_BYTES = 1 << 20  # a queue takes some 40 bytes of a fetch: enough for 25,000 queues
VALUES = pa.schema([("value", pa.large_binary())])


class Upload(Protocol):
    """Takes a request, and the values that come with it."""

    def __call__(self, request: bytes, /, *, values: Iterator[memoryview]) -> None:
        """Return when what was sent is kept."""


@dataclass(frozen=True, slots=True)
class Served:
    """An interface, and the object that answers its calls; *advice* is for a client above a limit.

    Any thread may call the object. It raises ``StreamError`` or ``OSError``, which the client gets.
    """

    interface: type
    answers: object
    max_bytes: int = REQUEST_MAX_BYTES
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """The text of an answer, the binary values beside it, and how these are compressed."""

    text: bytes
    beside: Sequence[bytes | memoryview]
    compression: str | None

    def batches(self) -> Iterator[SentBatch]:
        """Yield the batches of a bulk answer, each with its metadata; no value is copied."""
        for value in self.beside:
            yield _batch([value]), None
        yield _batch([]), self.text


@dataclass(frozen=True)
class FlightCalls:
    """What a server answers: interfaces, and by their names streams of batches, and uploads.

    A stream and an upload take a request, and check it.
    """

    served: Sequence[Served] = ()
    streams: Mapping[str, Callable[[bytes], flight.FlightDataStream]] = field(default_factory=dict)
    uploads: Mapping[str, Upload] = field(default_factory=dict)

    def beside(self, others: FlightCalls) -> FlightCalls:
        return FlightCalls(
            (*self.served, *others.served),
            {**self.streams, **others.streams},
            {**self.uploads, **others.uploads},
        )

    def find(self, name: str) -> Callable[[bytes], Answer] | None:
        """Return what answers the requests of a call; None if there is no such call."""
        of_interface, _, method = name.partition(".")
        for served in self.served:
            if served.interface.__name__ == of_interface:
                try:
                    declared = method_of(served.interface, method)
                except AttributeError:
                    return None
                return lambda request: _answer(served, declared, request)
        return None


NO_CALLS = FlightCalls()


def call_name(interface: type, method: str) -> str:
    return f"{interface.__name__}.{method}"


def write_request(given: Any, compression: str | None = None) -> bytes:
    return write_text({"rocketray": __version__, "given": given, "compression": compression})


def read_request(text: bytes, max_bytes: int, advice: str = "") -> dict[str, Any]:
    """Return the request of :func:`write_request`.

    Raises:
        ConfigError: it is none, or too large.
    """
    if len(text) > max_bytes:
        raise ConfigError(f"a request of {len(text)} bytes, and the limit is {max_bytes}{advice}")
    try:
        request = read_text(text)
    except ValueError as error:
        raise ConfigError(f"this is no request: {error!r:.200}") from None
    if not isinstance(request, dict):
        raise ConfigError(f"this is no request: {request!r:.200}")
    return request


def other_release(request: Mapping[str, Any]) -> str:
    """Return what to add to the error of a request whose client is of another release; else ""."""
    release = request.get("rocketray")
    if release == __version__:
        return ""
    return f"; the client is of release {release!r:.40}, and this service of {__version__!r}"


def read_result(name: str, form: ValueForm, text: bytes, beside: Sequence[memoryview]) -> Any:
    """Return the result in an answer to the call of that name; raise InvalidMessageError if none.

    Its binary values are views of those *beside* it.
    """
    try:
        return form.read(read_text(text, beside))
    except ValueError as error:
        raise _bad(name, str(error)) from None


def read_bulk(name: str, batches: Iterable[SentBatch]) -> tuple[bytes, list[memoryview]]:
    """Return the text and the values of :meth:`Answer.batches`, as views of the batches.

    Raises:
        InvalidMessageError: it broke off, or is none.
    """
    text: bytes | None = None
    beside: list[memoryview] = []
    for batch, metadata in batches:
        text = metadata
        try:
            beside += _values(batch)
        except ValueError as error:
            raise _bad(name, str(error)) from None
    if text is None:
        raise _bad(name, "it broke off")
    return text, beside


def _answer(served: Served, method: Callable[..., Any], text: bytes) -> Answer:
    """Make the call of a request; raise its error."""
    request = read_request(text, served.max_bytes, served.advice)
    compression = request.get("compression")
    if compression not in (None, "lz4", "zstd"):
        raise ConfigError(f"there is no compression {compression!r:.40} of an answer")
    form: CallForm = call_form(method)
    try:
        arguments, options = form.read(request.get("given"))
    except ConfigError as error:
        if reason := other_release(request):
            raise ConfigError(f"{error}{reason}") from None
        raise
    result = getattr(served.answers, method.__name__)(*arguments, **options)
    beside: list[bytes | memoryview] = []
    return Answer(write_text(form.result.write(result), beside), beside, compression)


def _batch(values: Sequence[bytes | memoryview]) -> pa.RecordBatch:
    """Return a batch of one value, or of none; pyarrow's ``array`` would import pandas."""
    ends = pa.py_buffer(np.array([0, *map(len, values)], np.int64))
    buffers = [None, ends, pa.py_buffer(values[0] if values else b"")]
    column = pa.Array.from_buffers(pa.large_binary(), len(values), buffers)
    return pa.RecordBatch.from_arrays([column], schema=VALUES)


def _values(batch: pa.RecordBatch) -> list[memoryview]:
    """Return the values of a batch, as views of it; raise ``ValueError`` for another batch."""
    if batch.schema != VALUES:
        raise ValueError(f"it has the columns {batch.schema.names!r:.200}")
    batch.validate(full=True)  # its error is a ValueError
    [column] = batch.columns
    if column.null_count:
        raise ValueError("it has a value that is null")
    if not len(batch):
        return []
    _, ends, data = column.buffers()
    positions = np.frombuffer(ends, np.int64, len(batch) + 1, 8 * column.offset).tolist()
    view = byte_view(data)
    return [view[start:end] for start, end in pairwise(positions)]


def byte_view(content: pa.Buffer) -> memoryview:
    """Return a view of a buffer that is equal to the same bytes: pyarrow's has signed ones."""
    return memoryview(content).cast("B")


def _bad(name: str, reason: str) -> InvalidMessageError:
    return InvalidMessageError(f"an answer of the fetch service to {name} is invalid: {reason}")
