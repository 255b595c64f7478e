from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rocketray.errors import ConfigError, InvalidMessageError, MessageTooLargeError
from rocketray.message import Message
from rocketray.store.batches.batch_form import EncodedBatch
from rocketray.store.batches.encoded_batch import encode_messages, pack_batch
from rocketray.store.batches.encoded_table import MeasuredTable

HOST = ("10.0.0.9", 1234)
NOW = 1_700_000_000_000
MAP = pa.map_(pa.string(), pa.string())


def encode(table: Any, **options: Any) -> EncodedBatch:
    return MeasuredTable("Trade", table, born_host=HOST, born_timestamp_ms=NOW, **options).encode()


def assert_is(batch: EncodedBatch, *messages: Message) -> None:
    """The batch is, byte for byte, what the messages encode to."""
    expected = encode_messages(messages, born_host=HOST, clock_ms=lambda: NOW)
    for field in fields(EncodedBatch):
        ours, theirs = getattr(batch, field.name), getattr(expected, field.name)
        assert np.asarray(ours).dtype == np.asarray(theirs).dtype
        np.testing.assert_array_equal(ours, theirs)


FULL = pa.table(
    {
        "body": pa.array([b"one", b"", b"x" * 300, b"four"], pa.binary()),
        "tags": pa.array(["pay", None, "Zahlung-ü", "pay"]),
        "keys": pa.array(["k1 k2", None, "", "k3"]),
        "properties": pa.array([[("x", "1"), ("y", "zwei")], None, [], [("z", "3")]], MAP),
        "region": pa.array(["eu", "us", None, "eu"]),
        "count": pa.array([1, None, -3, 2**62], pa.int64()),
        "urgent": pa.array([True, False, None, True]),
    }
)
PROPERTIES = ["region", "count", "urgent"]
IDS = [f"{n:032X}" for n in range(4)]
MESSAGES = [
    Message(
        "Trade",
        b"one",
        tags="pay",
        keys=("k1", "k2"),
        unique_key=IDS[0],
        properties={"region": "eu", "count": "1", "urgent": "true", "x": "1", "y": "zwei"},
    ),
    Message("Trade", b"", unique_key=IDS[1], properties={"region": "us", "urgent": "false"}),
    Message("Trade", b"x" * 300, tags="Zahlung-ü", unique_key=IDS[2], properties={"count": "-3"}),
    Message(
        "Trade",
        b"four",
        tags="pay",
        keys="k3",
        unique_key=IDS[3],
        properties={"region": "eu", "count": str(2**62), "urgent": "true", "z": "3"},
    ),
]


@pytest.mark.proves("producers", "A table is encoded like the same rows sent as messages")
def test_a_table_encodes_to_what_its_rows_do_as_messages() -> None:
    assert_is(encode(FULL, unique_ids=pa.array(IDS), property_columns=PROPERTIES), *MESSAGES)


@pytest.mark.parametrize(
    "ids",
    [
        "".join(IDS).encode(),
        np.frombuffer("".join(IDS).encode(), np.uint8).reshape(4, 32),
        pa.chunked_array([IDS[:1], IDS[1:]]),
        pa.array(IDS, pa.large_string()),
    ],
)
def test_unique_ids_come_in_several_forms(ids: Any) -> None:
    assert_is(encode(FULL, unique_ids=ids, property_columns=PROPERTIES), *MESSAGES)


@pytest.mark.parametrize("start", range(4))
def test_slices_batches_and_chunks_are_the_rows_they_show(start: int) -> None:
    ids = pa.array(IDS).slice(start)
    sliced = FULL.slice(start)
    chunked = pa.concat_tables([FULL.slice(start, 1), FULL.slice(start + 1)])
    for table in (sliced, chunked, sliced.combine_chunks().to_batches()[0]):
        options: dict[str, Any] = {"unique_ids": ids, "property_columns": PROPERTIES}
        assert_is(encode(table, **options), *MESSAGES[start:])


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.binary(),
        pa.large_binary(),
        pa.binary_view(),
        pa.binary(4),
        pa.dictionary(pa.int8(), pa.string()),
        pa.dictionary(pa.int32(), pa.binary()),
    ],
)
def test_a_body_is_bytes_or_text_of_any_arrow_type(kind: Any) -> None:
    bodies = pa.array([b"aaaa", b"bbbb", b"aaaa"])
    if pa.types.is_dictionary(kind):
        bodies = bodies.cast(kind.value_type).dictionary_encode().cast(kind)
    else:
        bodies = bodies.cast(kind)
    assert_is(
        encode(pa.table({"body": bodies}).slice(1)),
        Message("Trade", b"bbbb"),
        Message("Trade", b"aaaa"),
    )


@pytest.mark.parametrize(
    "tags",
    [
        pa.array(["a", None, "b"]),
        pa.array(["a", None, "b"], pa.large_string()),
        pa.array(["a", None, "b"], pa.string_view()),
        pa.array(["a", None, "b"]).dictionary_encode(),
        pa.DictionaryArray.from_arrays(pa.array([1, 2, 0]), pa.array(["b", "a", None])),
    ],
)
def test_tags_are_text_of_any_arrow_type_with_nulls(tags: Any) -> None:
    table = pa.table({"body": pa.array([b"1", b"2", b"3"]), "tags": tags})
    assert_is(
        encode(table),
        Message("Trade", b"1", tags="a"),
        Message("Trade", b"2"),
        Message("Trade", b"3", tags="b"),
    )


def test_a_column_of_nulls_alone_is_absent() -> None:
    columns = {name: pa.nulls(2) for name in ("tags", "keys", "p")}
    table = pa.table({"body": pa.array([b"1", b"2"]), **columns})
    assert_is(encode(table, property_columns=["p"]), Message("Trade", b"1"), Message("Trade", b"2"))


@pytest.mark.proves("producers", "The column `keys` of a table may hold lists")
def test_keys_may_be_lists() -> None:
    keys = pa.array([["x"], None, [], ["a", "b"]], pa.list_(pa.string()))
    for kind in (pa.list_(pa.string()), pa.large_list(pa.string())):
        table = pa.table({"body": pa.array([b""] * 4), "keys": keys.cast(kind)}).slice(1)
        assert_is(
            encode(table),
            Message("Trade", b""),
            Message("Trade", b""),
            Message("Trade", b"", keys=("a", "b")),
        )


def test_more_rows_than_a_block_are_written_in_blocks() -> None:
    bodies = [str(n).encode() for n in range(9000)]
    tags = [f"tag{n % 7}" for n in range(9000)]
    table = pa.table({"body": pa.array(bodies), "tags": pa.array(tags)})
    messages = [Message("Trade", body, tags=tag) for body, tag in zip(bodies, tags, strict=True)]
    assert_is(encode(table), *messages)


@pytest.mark.parametrize(
    ("columns", "row", "why"),
    [
        ({"tags": ["ok", "a||b"]}, 1, "never be matched"),
        ({"tags": ["ok", ""]}, 1, "never be matched"),
        ({"tags": ["*", "ok"]}, 0, "never be matched"),
        ({"tags": ["ok", "a "]}, 1, "never be matched"),
        ({"tags": ["ok", "a\x01b"]}, 1, "never be matched"),
        ({"keys": ["ok", "a\x02"]}, 1, "separate properties"),
        ({"keys": [["ok"], ["fine", "a b\x01"]]}, 1, "separate properties"),
        ({"keys": [["ok"], ["fine", ""]]}, 1, "is empty"),
        ({"keys": [["ok"], ["fine", None]]}, 1, "null"),
        ({"p": ["ok", ""]}, 1, "empty"),
        ({"p": ["ok", "\x01"]}, 1, "separate properties"),
        ({"properties": pa.array([[("a", "b")], [("", "x")]], MAP)}, 1, "empty"),
        ({"properties": pa.array([[("a", "b")], [("x", "")]], MAP)}, 1, "empty"),
        ({"properties": pa.array([[("a", "b")], [("x", None)]], MAP)}, 1, "'x' is null"),
        ({"properties": pa.array([None, [("TAGS", "x")]], MAP)}, 1, "TAGS is set by"),
        ({"properties": pa.array([[("a", "b"), ("KEYS", "x")], None], MAP)}, 0, "KEYS is set"),
        ({"body": [b"", None]}, 1, "body is null"),
    ],
)
def test_what_a_message_refuses_is_refused_with_its_row(
    columns: dict[str, Any], row: int, why: str
) -> None:
    table = pa.table({"body": pa.array([b"1", b"2"]), **columns})
    with pytest.raises(InvalidMessageError, match=f"^row {row}: .*{why}"):
        encode(table, property_columns=["p"] if "p" in columns else [])


def test_limits_are_those_of_a_message() -> None:
    limit = 4 * 1024 * 1024
    encode(pa.table({"body": pa.array([b"x" * limit])}))
    with pytest.raises(MessageTooLargeError, match="row 1: a body of 4194305 bytes"):
        encode(pa.table({"body": pa.array([b"", b"x" * (limit + 1)])}))
    fits = pa.table({"body": pa.array([b""]), "p": pa.array(["x" * 32_764])})
    assert_is(
        encode(fits, property_columns=["p"]),
        Message("Trade", b"", properties={"p": "x" * 32_764}),
    )
    too_long = pa.table({"body": pa.array([b""]), "p": pa.array(["x" * 32_765])})
    with pytest.raises(MessageTooLargeError, match="row 0: a property string of 32768 bytes"):
        encode(too_long, property_columns=["p"])


ONE = pa.table({"body": pa.array([b"x"])})


@pytest.mark.parametrize(
    ("table", "options", "why"),
    [
        (ONE.append_column("price", pa.array([1.5])), {}, "'price' is neither"),
        (
            ONE.append_column("p", pa.array([1.5])),
            {"property_columns": ["p"]},
            "cast it to the string",
        ),
        (ONE.rename_columns(["Body"]), {}, "'Body' is neither"),
        (pa.table({"tags": pa.array(["x"])}), {}, "missing: \\['body'\\]"),
        (ONE, {"property_columns": ["p"]}, "missing: \\['p'\\]"),
        (ONE.append_column("body", pa.array([b"y"])), {}, "once"),
        (ONE.append_column("TAGS", pa.array(["y"])), {"property_columns": ["TAGS"]}, "use tags="),
        (ONE, {"property_columns": ["body"]}, "reserved"),
        (
            ONE.append_column("p", pa.array(["y"])),
            {"property_columns": ["p", "p"]},
            "twice",
        ),
        (pa.table({"body": pa.array([1])}), {}, "'body' is int64"),
        (ONE.append_column("tags", pa.array([b"x"])), {}, "'tags' is binary"),
        (ONE.append_column("properties", pa.array(["x"])), {}, "give map<string, string>"),
        (ONE, {"unique_ids": b"0" * 64}, "1 row and 2 unique ids"),
        (ONE, {"unique_ids": b"0" * 31}, "1 row and 0 unique ids"),
        (ONE, {"unique_ids": pa.array([None], pa.string())}, "unique id is null"),
    ],
)
def test_a_table_of_another_shape_is_refused(table: Any, options: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        encode(table, **options)


def test_no_rows_and_no_topic_are_refused() -> None:
    with pytest.raises(InvalidMessageError, match="no messages"):
        encode(ONE.slice(1))
    with pytest.raises(ConfigError, match="topic"):
        MeasuredTable("a.b", ONE, born_host=HOST, born_timestamp_ms=NOW).encode()


@pytest.mark.parametrize("rows", [1, 3, 4, 5000])
def test_a_table_packs_itself_as_its_batch_is_packed(rows: int) -> None:
    """At any place of a buffer, of which it writes nothing else."""
    table = pa.concat_tables([FULL] * (-(-rows // 4))).slice(0, rows)
    ids = np.frombuffer(b"".join(b"%032X" % n for n in range(rows)), np.uint8).reshape(rows, 32)
    options: dict[str, Any] = {"unique_ids": ids, "property_columns": PROPERTIES}
    measured = MeasuredTable("Trade", table, born_host=HOST, born_timestamp_ms=NOW, **options)
    size = measured.packed_bytes
    for shift in (0, 3):
        buffer = np.full(size + 64, 0xA5, np.uint8)
        measured.pack_into(buffer[shift : shift + size])
        assert buffer[shift : shift + size].tobytes() == pack_batch(encode(table, **options))
        assert (np.delete(buffer, slice(shift, shift + size)) == 0xA5).all()
