"""Fetches and their replies as bytes: what arrives, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.harness.patience import patience

from rocketray.broker.fetching.flight_link import SentBatch
from rocketray.errors import ConfigError, InvalidMessageError, ShardUnavailableError, StreamError
from rocketray.filters.counters import FilterCounters
from rocketray.filters.subscription import Subscription
from rocketray.groups.filter_plan import QueuePart
from rocketray.messaging.consumers.stream_source import QueueBounds
from rocketray.messaging.remote.fetch_api import POLL_MAX_S, Fetch, FetchedQueue, QueueFetch
from rocketray.messaging.remote.fetch_wire import (
    FRAMES,
    FetchRequest,
    bounds_from_json,
    bounds_to_json,
    queue_from_json,
    queue_to_json,
    read_reply,
    reply_batches,
    wake_from_json,
    wake_to_json,
)

OLD, NEW = Subscription.tags("a || b"), Subscription.sql("a > 1")
SESSION = "0123456789abcdef" * 2
FETCH = Fetch(
    SESSION,
    7,
    "g",
    "Trade",
    {
        0: QueueFetch(QueuePart(OLD, 90), 3, 4096),
        5: QueueFetch(QueuePart(NEW, None), (1 << 63) - 1, 0),
        6: QueueFetch(QueuePart(OLD, None), 0, 1),
    },
)
COUNTERS = FilterCounters(scanned=9, tag_rejected=4, delivered=5)
REPLY = {
    0: FetchedQueue([b"one", memoryview(b"two" * 100)], 12, 20, "s", COUNTERS),
    6: FetchedQueue([], 4, error=ShardUnavailableError("Trade/6", 50, "it starts")),
}


def test_a_request_is_the_same_one_at_the_service() -> None:
    request = FetchRequest(FETCH, 2.5, "zstd")
    assert FetchRequest.from_json(request.to_json()) == request
    assert FetchRequest.from_json(FetchRequest(FETCH).to_json()) == FetchRequest(FETCH)


def test_a_subscription_of_many_queues_is_sent_once() -> None:
    part = QueuePart(Subscription.tags("t" * 1000), None)
    queues = {at: QueueFetch(part, 0, 0) for at in range(256)}
    assert len(FetchRequest(Fetch(SESSION, 1, "g", "Trade", queues)).to_json()) < 10_000


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"session": "../one"}, "no name of a session"),
        ({"session": None}, "no name of a session"),
        ({"number": -1}, "-1 is no number"),
        ({"number": True}, "True is no number"),
        ({"number": 1 << 63}, "is no number"),
        ({"group": "a/b"}, "a/b"),
        ({"topic": "../up"}, "../up"),
        ({"timeoutS": POLL_MAX_S + 1}, "waits for 6.0 seconds"),
        ({"timeoutS": float("nan")}, "waits for nan"),
        ({"timeoutS": "1"}, "waits for '1'"),
        ({"compression": "gzip"}, "no compression 'gzip'"),
        ({"subscriptions": [{}]}, "is not a subscription"),
        ({"subscriptions": [OLD.to_json()] * 17}, "17 subscriptions"),
        ({"subscriptions": [{"expressionType": "SQL92", "expression": "a >"}]}, "a >"),
        ({"subscriptions": []}, "is no number"),
        ({"queues": [[0, 2, None, 0, 0]]}, "2 is no number"),
        ({"queues": [[0, -1, None, 0, 0]]}, "-1 is no number"),
        ({"queues": [[1 << 31, 0, None, 0, 0]]}, "is no number"),
        ({"queues": [[0, 0, "9", 0, 0]]}, "'9' is no number"),
        ({"queues": [[0, 0, None, 0.5, 0]]}, "0.5 is no number"),
        ({"queues": [[0, 0, None, 0, -1]]}, "-1 is no number"),
        ({"queues": [[0, 0, None, 0]]}, "this is no fetch"),
        ({"queues": 7}, "this is no fetch"),
    ],
)
def test_a_request_with_a_wrong_value_is_refused(change: dict[str, Any], said: str) -> None:
    good = json.loads(FetchRequest(FETCH).to_json())
    with pytest.raises(StreamError) as caught:
        FetchRequest.from_json(json.dumps(good | change).encode())
    assert said in str(caught.value)


@pytest.mark.parametrize("text", [b"", b"[]", b"7", b"{}", b"\xff", b" " * (1 << 20) + b"1"])
def test_what_is_no_request_is_refused(text: bytes) -> None:
    for read in (FetchRequest.from_json, queue_from_json, wake_from_json):
        with pytest.raises(ConfigError):
            read(text)


def test_a_part_of_a_request_that_is_left_out_is_refused() -> None:
    good = json.loads(FetchRequest(FETCH).to_json())
    for name in good:
        rest = {each: value for each, value in good.items() if each != name}
        with pytest.raises(ConfigError):
            FetchRequest.from_json(json.dumps(rest).encode())


def test_small_requests_and_their_results_arrive() -> None:
    assert queue_from_json(queue_to_json("Trade", 3)) == ("Trade", 3)
    assert bounds_from_json(bounds_to_json(QueueBounds(4, 9))) == QueueBounds(4, 9)
    assert wake_from_json(wake_to_json(SESSION, 8)) == (SESSION, 8)
    for text in (b"", b"[1]", b"[1, 2, 3]", b'["1", 2]', b"7", b"[-1, 2]"):
        with pytest.raises(ConfigError):
            bounds_from_json(text)


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_a_reply_is_the_same_one_at_the_member(compression: str | None) -> None:
    options = pa.ipc.IpcWriteOptions(compression=compression)
    found = read_reply(FETCH, [(_sent(each, options), rest) for each, rest in reply_batches(REPLY)])
    assert found.keys() == REPLY.keys()
    assert [bytes(frame) for frame in found[0].frames] == [b"one", b"two" * 100]
    assert (found[0].next_position, found[0].end, found[0].stream) == (12, 20, "s")
    assert found[0].counters == COUNTERS
    assert found[0].error is None
    error = found[6].error
    assert isinstance(error, ShardUnavailableError)
    assert (error.shard, error.retry_after_ms) == ("Trade/6", 50)


def _sent(batch: pa.RecordBatch, options: pa.ipc.IpcWriteOptions) -> pa.RecordBatch:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, FRAMES, options=options) as writer:
        writer.write_batch(batch)
    return pa.ipc.open_stream(sink.getvalue()).read_next_batch()


def sent() -> list[SentBatch]:
    return [*reply_batches(REPLY)]


def test_a_frame_is_not_copied() -> None:
    frame = bytearray(1000)
    [batch, _] = reply_batches({0: FetchedQueue([memoryview(frame)], 1)})
    [found] = read_reply(FETCH, [batch, sent()[-1]])[0].frames
    frame[7] = 99
    assert found[7] == 99


@pytest.mark.parametrize("end", range(3))
def test_a_reply_that_broke_off_is_none(end: int) -> None:
    with pytest.raises(InvalidMessageError, match="broke off"):
        read_reply(FETCH, sent()[:end])


@pytest.mark.parametrize(
    "rest",
    [
        b"",
        b"[]",
        b"\xff",
        b'{"x": []}',
        b'{"0": []}',
        b'{"9": [1, 2, "s", [], null]}',
        b'{"0": [1, 2, "s", [], null]}',
        json.dumps({"0": [-1, 2, "s", [0] * 19, None]}).encode(),
        json.dumps({"0": [1, 2, 3, [0] * 19, None]}).encode(),
        json.dumps({"0": [1, 2, "s", ["0"] * 19, None]}).encode(),
    ],
)
def test_a_reply_whose_end_is_wrong_is_none(rest: bytes) -> None:
    batches = sent()
    with pytest.raises(ConfigError):
        read_reply(FETCH, [*batches[:-1], (batches[-1][0], rest)])


def test_a_frame_of_a_queue_that_was_not_asked_for_or_no_frame_is_none() -> None:
    for row in (
        {"queueId": 9, "frame": b"x"},
        {"queueId": 0, "frame": None},
        {"queueId": None, "frame": b""},
    ):
        batch = pa.RecordBatch.from_pylist([row], schema=FRAMES)
        with pytest.raises(InvalidMessageError, match="a frame of queue"):
            read_reply(FETCH, [(batch, None), sent()[-1]])


def test_a_batch_of_other_columns_or_with_wrong_lengths_is_none() -> None:
    other = pa.RecordBatch.from_pylist([{"queueId": 0}])
    with pytest.raises(InvalidMessageError):
        read_reply(FETCH, [(other, None), sent()[-1]])
    lengths = np.array([0, 1])
    buffers = [None, pa.py_buffer(lengths), pa.py_buffer(b"x")]
    frame = pa.Array.from_buffers(pa.large_binary(), 1, buffers)
    wrong = pa.RecordBatch.from_arrays([pa.array([0], pa.int32()), frame], schema=FRAMES)
    lengths[1] = 1 << 40
    with pytest.raises(InvalidMessageError):
        read_reply(FETCH, [(wrong, None), sent()[-1]])


def test_changed_bytes_of_a_request_never_make_another_error(seed: int) -> None:
    random = Random(seed)
    good = FetchRequest(FETCH, 1.0, "lz4").to_json()
    refused = 0
    for _ in range(3000):
        text = bytearray(good)
        for _ in range(random.randint(1, 3)):
            text[random.randrange(len(text))] = random.choice(b'0123456789-.{}[]",:nulltrue\\x\xff')
        try:
            FetchRequest.from_json(bytes(text))
        except StreamError:
            refused += 1
    assert refused > 1000


def test_a_reply_needs_no_pandas_whose_import_takes_as_long_as_the_rest_of_a_restart() -> None:
    script = (
        "import sys; from rocketray.messaging.remote.fetch_api import FetchedQueue;"
        "from rocketray.messaging.remote.fetch_wire import reply_batches;"
        "[*reply_batches({0: FetchedQueue([b'x'], 1)})]; assert 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-P", "-c", script], check=True, timeout=patience(60))
