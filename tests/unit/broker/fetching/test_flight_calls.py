"""Calls as bytes between machines: what arrives is what was sent, and anything else is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pytest
from support.harness.patience import patience

from rocketray import __version__
from rocketray.broker.fetching.flight_calls import (
    VALUES,
    Answer,
    FlightCalls,
    SentBatch,
    Served,
    read_bulk,
    read_result,
    write_request,
)
from rocketray.errors import ConfigError, InvalidMessageError
from rocketray.runtime.calls.value_forms import call_form

pytestmark = pytest.mark.proves(
    "groups",
    "Members get what they ask for through a real fetch service, compressed or not; a "
    "request or reply that is wrong is refused",
)


class ShopApi(Protocol):
    def buy(self, name: str, frames: list[memoryview]) -> dict[str, list[memoryview]]: ...


class Shop:
    def buy(self, name: str, frames: list[memoryview]) -> dict[str, list[memoryview]]:
        return {name: frames}


CALLS = FlightCalls([Served(ShopApi, Shop(), 1000, "; buy less")])
FORM = call_form(ShopApi.buy)
FRAMES = [memoryview(b"one"), memoryview(b""), memoryview(b"two" * 100)]
REQUEST = write_request(FORM.write(["tea", FRAMES], {}))


def answer(request: bytes) -> Answer:
    found = CALLS.find("ShopApi.buy")
    assert found is not None
    return found(request)


def sent(options: pa.ipc.IpcWriteOptions | None = None) -> list[SentBatch]:
    return [(_passed(batch, options), text) for batch, text in answer(REQUEST).batches()]


def _passed(batch: pa.RecordBatch, options: pa.ipc.IpcWriteOptions | None) -> pa.RecordBatch:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, VALUES, options=options) as writer:
        writer.write_batch(batch)
    return pa.ipc.open_stream(sink.getvalue()).read_next_batch()


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_a_result_is_the_same_one_at_the_client(compression: str | None) -> None:
    request = write_request(FORM.write(["tea", FRAMES], {}), compression)
    found = answer(request)
    assert found.compression == compression
    beside = [memoryview(value) for value in found.beside]
    assert read_result("buy", FORM.result, found.text, beside) == {"tea": FRAMES}
    bulk = read_bulk("buy", sent(pa.ipc.IpcWriteOptions(compression=compression)))
    assert read_result("buy", FORM.result, *bulk) == {"tea": FRAMES}


def test_a_binary_value_is_not_copied() -> None:
    frame = bytearray(1000)
    found = Answer(b"", [memoryview(frame)], None)
    [view] = read_bulk("buy", found.batches())[1]
    frame[7] = 99
    assert view[7] == 99


@pytest.mark.parametrize("name", ["", "ShopApi", "ShopApi._buy", "ShopApi.sell", "Shop.buy", "."])
def test_there_are_only_the_calls_of_the_interfaces(name: str) -> None:
    assert CALLS.find(name) is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"rocketray": "9.8.7", "given": []},
            f"the client is of release '9.8.7', and this service of '{__version__}'",
        ),
        ({"compression": "gzip"}, "no compression 'gzip'"),
        ({"compression": []}, "no compression"),
        ({"given": None}, "the arguments of buy are invalid"),
        ({"given": [["tea", []], {"at": 1}]}, "no value is named"),
        ({"given": [["tea", [{"beside": 0}]], {}]}, "not of type str"),
        ({"given": [["tea", ["no base64"]], {}]}, "the arguments of buy are invalid"),
    ],
)
def test_a_request_with_a_wrong_value_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        answer(json.dumps(json.loads(REQUEST) | change).encode())


@pytest.mark.parametrize("text", [b"", b"[]", b"7", b"{}", b"\xff", b"[" * 999])
def test_what_is_no_request_is_refused(text: bytes) -> None:
    with pytest.raises(ConfigError):
        answer(text)


def test_a_request_has_a_limit_and_says_what_to_do() -> None:
    with pytest.raises(ConfigError, match="of 1001 bytes, and the limit is 1000; buy less"):
        answer(b" " * 1001)


@pytest.mark.parametrize("end", range(4))
def test_an_answer_that_broke_off_is_none(end: int) -> None:
    with pytest.raises(InvalidMessageError, match="buy is invalid: it broke off"):
        read_bulk("ShopApi.buy", sent()[:end])


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b"\xff", b"[]]", b"[" * 100_000, b'{"a": 1}', b'[[{"beside": 0}, []]]'),
        *(b'[["a", [{"beside": %s}]]]' % at for at in (b"3", b"-1", b"true", b"null")),
    ],
)
def test_a_text_that_is_no_result_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidMessageError, match="buy is invalid"):
        read_result("buy", FORM.result, text, FRAMES)


def test_a_batch_of_other_columns_or_lengths_or_with_null_is_none() -> None:
    lengths = np.array([0, 1])
    buffers = [None, pa.py_buffer(lengths), pa.py_buffer(b"x")]
    value = pa.Array.from_buffers(pa.large_binary(), 1, buffers)
    wrong = pa.RecordBatch.from_arrays([value], schema=VALUES)
    lengths[1] = 1 << 40
    null = pa.RecordBatch.from_pylist([{"value": None}], schema=VALUES)
    other = pa.RecordBatch.from_pylist([{"frame": b"x"}])
    for batch in (other, wrong, null):
        with pytest.raises(InvalidMessageError):
            read_bulk("buy", [(batch, None), sent()[-1]])


def test_an_answer_needs_no_pandas_whose_import_takes_as_long_as_the_rest_of_a_restart() -> None:
    script = (
        "import sys; from rocketray.broker.fetching.flight_calls import Answer;"
        "[*Answer(b'', [b'x'], None).batches()]; assert 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-P", "-c", script], check=True, timeout=patience(60))
