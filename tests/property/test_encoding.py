"""Messages, tables and frames: three ways to the same bytes."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketray.base.property_string import decode_properties
from rocketray.message import Message
from rocketray.store.batches.batch_form import EncodedBatch, RecordOptions
from rocketray.store.batches.encoded_batch import encode_messages, pack_batch, unpack_batch
from rocketray.store.batches.encoded_table import MeasuredTable
from rocketray.store.formats.compression import Compression
from rocketray.store.formats.record import decode_record

few = settings(max_examples=60, deadline=None)
HOST, NOW = ("10.0.0.9", 1234), 1_700_000_000_000
PROPERTIES = ["region", "ä"]
# All of Unicode but lone surrogates, which UTF-8 has not, and the separators.
characters = st.characters(blacklist_categories=["Cs"], blacklist_characters="\0\x01\x02")
word = st.text(characters, min_size=1, max_size=20)
key = word.filter(lambda text: " " not in text)
tag = word.map(lambda text: f"t{text}t").filter(lambda text: "||" not in text)
messages = st.builds(
    Message,
    topic=st.just("Trade"),
    body=st.binary(max_size=100) | st.binary(max_size=5).map(lambda part: part * 30),
    tags=st.one_of(st.none(), tag),
    keys=st.lists(key, max_size=3).map(tuple),
    unique_key=st.uuids().map(lambda one: one.hex),
    properties=st.dictionaries(st.sampled_from(PROPERTIES), word),
)

compressions = st.none() | st.builds(
    Compression, st.sampled_from(["zlib", "lz4", "zstd"]), st.sampled_from([0, 10, 60])
)


def assert_same(left: EncodedBatch, right: EncodedBatch) -> None:
    for field in fields(EncodedBatch):
        np.testing.assert_array_equal(getattr(left, field.name), getattr(right, field.name))


@few
@given(st.lists(messages, min_size=1, max_size=6), compressions)
def test_a_batch_survives_its_frame_and_decodes_to_its_messages(
    several: list[Message], compression: Compression | None
) -> None:
    batch = encode_messages(
        several,
        born_host=HOST,
        clock_ms=lambda: NOW,
        options=RecordOptions(compression, properties_crc=False),  # only a store fills it in
    )
    assert_same(unpack_batch(pack_batch(batch)), batch)
    end = 0
    for message, size in zip(several, batch.sizes.tolist(), strict=True):
        record = bytearray(batch.records[end : end + size].tobytes())
        decoded = decode_record(bytes(record), "memory", 0)
        assert decoded.body == message.body
        assert decoded.properties == decode_properties(message.encoded_properties())
        assert decoded.born_host == HOST
        end += size
    assert end == len(batch.records)


@few
@given(st.lists(messages, min_size=1, max_size=6), st.booleans(), compressions)
def test_a_table_is_the_messages_of_its_rows(
    several: list[Message], as_list: bool, compression: Compression | None
) -> None:
    keys = [list(one.keys) if as_list else " ".join(one.keys) for one in several]
    columns = {
        "body": pa.array([one.body for one in several], pa.binary()),
        "tags": pa.array([one.tags for one in several], pa.string()).dictionary_encode(),
        "keys": pa.array(keys, pa.list_(pa.string()) if as_list else pa.string()),
    }
    for name in PROPERTIES:
        columns[name] = pa.array([one.properties.get(name) for one in several], pa.string())
    in_order = [
        Message(
            one.topic,
            one.body,
            tags=one.tags,
            keys=one.keys,
            unique_key=one.unique_key,
            properties={
                name: one.properties[name] for name in PROPERTIES if name in one.properties
            },
        )
        for one in several
    ]
    batch = MeasuredTable(
        "Trade",
        pa.table(columns),
        born_host=HOST,
        born_timestamp_ms=NOW,
        unique_ids=pa.array([one.unique_key for one in several]),
        property_columns=PROPERTIES,
        options=RecordOptions(compression),
    ).encode()
    expected = encode_messages(
        in_order, born_host=HOST, clock_ms=lambda: NOW, options=RecordOptions(compression)
    )
    assert_same(batch, expected)
