"""Records: the plain encoder, the batch encoder with the append kernel, and the decoder agree."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from support.models.records import GOLDEN_V1
from support.nodes.stores import FakeClock

from rocketray.base.config import StoreConfig
from rocketray.base.message_time import TIME_MAX_MS
from rocketray.base.property_string import decode_properties
from rocketray.errors import CorruptRecordError, MessageTooLargeError
from rocketray.message import CRC_PROPERTY, Message
from rocketray.store.formats.compression import Compression
from rocketray.store.formats.record import RecordValues, decode_record, encode_record, parse_record
from rocketray.store.message_store import MessageStore

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\1\2"), min_size=1)
WORDS = TEXT.filter(lambda text: " " not in text)
TAGS = st.none() | TEXT.filter(
    lambda tag: tag != "*" and "||" not in tag and tag == tag.strip("".join(map(chr, range(33))))
)
MESSAGES = st.builds(
    Message,
    topic=st.sampled_from(["Trade", "%RETRY%" + "g" * 180]),
    body=st.binary(max_size=300),
    tags=TAGS,
    keys=st.lists(WORDS, max_size=3),
    properties=st.dictionaries(TEXT.filter(lambda name: name.islower()), TEXT, max_size=3),
    flag=st.integers(-(2**31), 2**31 - 1),
    unique_key=st.none() | WORDS,
    born_timestamp_ms=st.integers(0, TIME_MAX_MS),
)
HOSTS = st.tuples(st.sampled_from(["1.2.3.4", "fd00::1:2"]), st.integers(0, 65_535))
STORE_HOST = ("10.9.8.7", 10_911)


@given(MESSAGES, HOSTS, HOSTS, st.integers(0, 2**40), st.integers(0, 2**62))
def test_a_decoded_record_is_the_message_that_was_encoded(
    message: Message, born: tuple[str, int], store: tuple[str, int], offset: int, time_ms: int
) -> None:
    record = encode_record(
        RecordValues(
            message.topic,
            message.body,
            message.encoded_properties(),
            flag=message.flag,
            queue_id=3,
            queue_offset=time_ms,
            physical_offset=offset,
            born_timestamp_ms=message.born_timestamp_ms or 0,
            born_host=born,
            store_timestamp_ms=time_ms,
            store_host=store,
        )
    )
    decoded = decode_record(record, "log", offset)
    assert (decoded.topic, decoded.body, decoded.flag) == (
        message.topic,
        message.body,
        message.flag,
    )
    assert decoded.properties == decode_properties(message.encoded_properties())
    assert decoded.born_timestamp_ms == message.born_timestamp_ms
    assert (decoded.born_host, decoded.store_host) == (born, store)
    assert (decoded.queue_offset, decoded.store_timestamp_ms) == (time_ms, time_ms)


@settings(deadline=None, max_examples=50)
@given(st.lists(MESSAGES, min_size=1, max_size=5))
def test_the_store_writes_the_bytes_of_the_plain_encoder(messages: list[Message]) -> None:
    clock = FakeClock()
    config = StoreConfig(commit_log_segment_bytes=65_536, store_host=STORE_HOST)
    with (
        tempfile.TemporaryDirectory() as directory,
        MessageStore(Path(directory), config, clock_ms=clock) as store,
    ):
        offset = 0
        counts: dict[str, int] = {}
        for message in messages:
            count = counts.setdefault(message.topic, 0)
            expected = encode_record(
                RecordValues(
                    message.topic,
                    message.body,
                    message.encoded_properties(),
                    flag=message.flag,
                    queue_id=7,
                    queue_offset=count,
                    physical_offset=offset,
                    born_timestamp_ms=message.born_timestamp_ms or 0,
                    born_host=STORE_HOST,
                    store_timestamp_ms=clock.now_ms,
                    store_host=STORE_HOST,
                ),
                properties_crc=True,
            )
            placed = store.put([message], 7)[0]
            assert placed.physical_offset == offset
            assert store._log.read(offset, len(expected)) == expected
            offset += len(expected)
            counts[message.topic] = count + 1


@given(st.binary(max_size=400))
def test_noise_is_refused_and_never_a_message(noise: bytes) -> None:
    assert isinstance(parse_record(noise, 0, len(noise)), str)


@given(st.integers(0, 125), st.binary(min_size=1, max_size=12))
def test_a_damaged_record_gives_our_errors_or_a_record_of_the_same_lengths(
    position: int, noise: bytes
) -> None:
    record = bytearray(GOLDEN_V1)
    record[position : position + len(noise)] = noise
    del record[126:]
    try:
        message = decode_record(bytes(record), "log", 1000)
    except (CorruptRecordError, MessageTooLargeError):
        return
    assert message.size == 126
    assert message.properties == decode_properties(bytes(record[-21:]))


COMPRESSIONS: list[Compression | None] = [
    None,
    Compression("zlib", 0),
    Compression("lz4", 0),
    Compression("zstd", 0),
]


@settings(deadline=None, max_examples=200)
@given(MESSAGES, st.tuples(HOSTS, HOSTS), st.sampled_from(COMPRESSIONS), st.booleans(), st.data())
def test_a_damaged_record_of_any_form_is_refused_or_the_message_that_it_was(
    message: Message,
    hosts: tuple[tuple[str, int], tuple[str, int]],
    compression: Compression | None,
    with_crc: bool,
    data: st.DataObject,
) -> None:
    stored = compression.compress(message.body) if compression else message.body
    record = encode_record(
        RecordValues(
            message.topic,
            stored,
            message.encoded_properties(),
            queue_id=1,
            queue_offset=2,
            physical_offset=1000,
            born_timestamp_ms=3,
            born_host=hosts[0],
            store_timestamp_ms=4,
            store_host=hosts[1],
            sys_flag=compression.sys_flag if compression and stored is not message.body else 0,
        ),
        properties_crc=with_crc,
    )
    original = decode_record(record, "log", 1000)
    assert original.body == message.body
    damaged = bytearray(record)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(record) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = decode_record(bytes(damaged), "log", 1000)
    except (CorruptRecordError, MessageTooLargeError):
        return
    fields = parse_record(damaged, 0, len(damaged))
    assert not isinstance(fields, str)
    assert damaged[fields.body_start : fields.body_end] == stored  # the CRC says so
    if with_crc and CRC_PROPERTY in found.properties and damaged[-21] == record[-21]:
        assert found == original
