"""The page about Avro and Protobuf: what its codecs write and refuse, and how a body ends that they refuse.

The bytes with the ids 1 and 2 are those of Confluent's serializers (confluent-kafka 2.16.1, with
its registry in memory) for the same values. Protobuf's library is there; fastavro is not among the
pinned packages, so a stand-in with its interface reads and writes the three types of the page.
With fastavro 1.13.1 the page's codec gave the same bytes and refused the same bodies.
"""

from __future__ import annotations

import asyncio
import json
import re
import struct
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import BytesIO
from types import ModuleType
from typing import Any, ClassVar

import pytest
from google.protobuf import (  # type: ignore[import-untyped]  # without stubs
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)
from support.harness.page_modules import modules_of
from support.harness.source_tree import ROOT

import rocketray as rr
from rocketray.errors import InvalidMessageError
from rocketray.testing import Broker, Clock

pytestmark = pytest.mark.proves(
    "documentation",
    "The codecs of the page about Avro and Protobuf write what Confluent's serializers "
    "write, and a body that they refuse is a dead letter with the reason",
)

Pages = dict[str, ModuleType]
FIELD = descriptor_pb2.FieldDescriptorProto
AVRO = b"\0\0\0\0\x02" + b"\x02o" + struct.pack("<d", 120.0) + b"\x04us"
PAYMENT = b"\0\0\0\0\x01\0\n\x01o\x11" + struct.pack("<d", 2.0)
REFUND = b"\0\0\0\0\x01\x02\x02\n\x01r"
REASON = b"\0\0\0\0\x01\x04\x02\x02\n\x01t"
TOO_SHORT = "4 bytes: too few for the id of a schema"
NO_FRAME = "it begins with byte 123, not with 0 and the id of a schema"


def payment_pb2() -> ModuleType:
    """What protoc makes of a file with Payment, Refund, and in Refund the messages Note and Reason."""
    file = descriptor_pb2.FileDescriptorProto(name="payment.proto", syntax="proto3")
    payment, refund = (file.message_type.add(name=name) for name in ("Payment", "Refund"))
    refund.nested_type.add(name="Note")
    reason = refund.nested_type.add(name="Reason")
    for kind, name in ((payment, "order"), (refund, "order"), (reason, "text")):
        kind.field.add(name=name, number=1, type=FIELD.TYPE_STRING, label=FIELD.LABEL_OPTIONAL)
    payment.field.add(name="amount", number=2, type=FIELD.TYPE_DOUBLE, label=FIELD.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    module = ModuleType("payment_pb2")
    for name in ("Payment", "Refund", "Refund.Reason"):
        found = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
        setattr(module, name.rpartition(".")[2], found)
    return module


def fastavro() -> ModuleType:
    """The three functions of fastavro that the page uses, for records of strings and doubles."""

    def write(out: BytesIO, schema: Any, value: Any) -> None:
        for field in schema["fields"]:
            if field["type"] == "double":
                out.write(struct.pack("<d", value[field["name"]]))
            else:
                text = value[field["name"]].encode()
                out.write(bytes([len(text) * 2]) + text)

    def read(source: BytesIO, written: Any, current: Any) -> dict[str, Any]:
        value = {f["name"]: f["default"] for f in current["fields"] if "default" in f}
        for field in written["fields"]:
            size = 8 if field["type"] == "double" else source.read(1)[0] // 2
            found = source.read(size)
            if len(found) < size:
                raise EOFError(f"Expected {size} bytes, read {len(found)}")
            is_double = field["type"] == "double"
            value[field["name"]] = struct.unpack("<d", found)[0] if is_double else found.decode()
        return value

    module: Any = ModuleType("fastavro")
    module.parse_schema = lambda schema: schema
    module.schemaless_writer, module.schemaless_reader = write, read
    return module  # type: ignore[no-any-return]


@pytest.fixture
def pages(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Pages:
    """The modules of the page, whose apps reach *broker*."""
    monkeypatch.setattr(rr, "App", lambda name: _APP(name, connection=broker), raising=False)
    for module in (payment_pb2(), fastavro()):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return {
        module.__name__: module
        for module in modules_of(ROOT / "docs/how-to/codecs.md", monkeypatch)
    }


_APP = rr.App


def test_avro_is_as_confluents_serializer_writes_it(pages: Pages) -> None:
    page = pages["avro_payments"]
    value = {"order": "o", "amount": 120.0, "region": "us"}
    codec = page.Avro(schemas={2: page.SCHEMAS[9]}, current=2)
    assert codec.dumps(value) == AVRO
    assert codec.loads(AVRO) == value


def test_a_body_of_an_older_schema_becomes_a_value_of_the_current_one(pages: Pages) -> None:
    page = pages["avro_payments"]
    older = page.Avro(schemas=page.SCHEMAS, current=7).dumps({"order": "o", "amount": 1.0})
    assert older.startswith(b"\0\0\0\0\x07")
    current = page.Avro(schemas=page.SCHEMAS, current=9)
    assert current.loads(older) == {"order": "o", "amount": 1.0, "region": "eu"}


def test_protobuf_is_as_confluents_serializer_writes_it(pages: Pages) -> None:
    page, types = pages["protobuf_payments"], sys.modules["payment_pb2"]
    for kind, value, body in (
        (types.Payment, types.Payment(order="o", amount=2.0), PAYMENT),
        (types.Refund, types.Refund(order="r"), REFUND),
        (types.Reason, types.Reason(text="t"), REASON),
    ):
        codec = page.Protobuf(kind=kind, schema_ids=[1])
        assert codec.dumps(value) == body
        assert codec.loads(body) == value


@pytest.mark.parametrize(
    ("number", "encoded"), [(0, b"\0"), (1, b"\2"), (63, b"~"), (64, b"\x80\1"), (300, b"\xd8\4")]
)
def test_numbers_of_messages_are_zigzag_varints(number: int, encoded: bytes, pages: Pages) -> None:
    assert pages["protobuf_payments"].varint(number) == encoded


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (AVRO[:4], TOO_SHORT),
        (b'{"order": "o"}', NO_FRAME),
        (b"\0\0\0\0\x08" + AVRO[5:], "schema 8 is not known here: [2] are"),
        (AVRO[:-1], "no value of schema 2: EOFError('Expected 2 bytes, read 1')"),
        (AVRO[:5] + b"\xfe" + AVRO[6:], "no value of schema 2: EOFError("),
        (AVRO + b"x", "more bytes follow a value of schema 2"),
    ],
)
def test_what_is_no_avro_is_refused_with_the_reason(body: bytes, said: str, pages: Pages) -> None:
    page = pages["avro_payments"]
    codec = page.Avro(schemas={2: page.SCHEMAS[9]}, current=2)
    with pytest.raises(ValueError, match=re.escape(said)):
        codec.loads(body)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (PAYMENT[:4], TOO_SHORT),
        (b'{"order": "o"}', NO_FRAME),
        (b"\0\0\0\0\x02" + PAYMENT[5:], "schema 2 is not known here: [1] are"),
        (REFUND, "it is no Payment, but another message of its file"),
        (PAYMENT[:5], "it is no Payment"),
        (PAYMENT[:5] + b"\xff" * 9 + PAYMENT[5:], "it is no Payment"),
        (PAYMENT[:-1], "it is no value of schema 1: DecodeError("),
    ],
)
def test_what_is_no_protobuf_is_refused_with_the_reason(
    body: bytes, said: str, pages: Pages
) -> None:
    page, types = pages["protobuf_payments"], sys.modules["payment_pb2"]
    codec = page.Protobuf(kind=types.Payment, schema_ids=[1])
    with pytest.raises(ValueError, match=re.escape(said)):
        codec.loads(body)


@pytest.mark.parametrize("form", ["avro", "protobuf"])
def test_an_agent_gets_filtered_values_and_a_bad_body_is_a_dead_letter(
    form: str, pages: Pages, broker: Broker, clock: Clock
) -> None:
    page = pages[f"{form}_payments"]
    topic = page.payments.get_topic_name()

    async def scenario() -> None:
        async with broker.running(page.app):
            for order, amount in (("small", 7.0), ("large", 120.0)):
                await page.payments.send(value=page.Payment(order=order, amount=amount))
            with pytest.raises(InvalidMessageError, match=f"topic {topic}: value .* cannot be"):
                await page.payments.send(value={"orders": "no such field"})
            with broker.producer() as producer:
                producer.send(topic, b"{}", properties={"amount": "200"})
            await page.payments.send(value=page.Payment(order="last", amount=300.0))
            await broker.settle()
            for _ in range(16):
                clock.advance(hours=2)
                await broker.settle()

    asyncio.run(scenario())
    assert [payment.order for payment in page.large] == ["large", "last"]
    [letter] = broker.stored(f"%DLQ%{form}-payments-collect")
    assert letter.body == b"{}"
    assert letter.properties["FAILURE_REASON"] == (
        "ValueDecodeError: 2 bytes: too few for the id of a schema"
    )


class Registry(BaseHTTPRequestHandler):
    """Two versions of one subject, as a registry answers."""

    answers: ClassVar[dict[str, Any]] = {
        "/subjects/Payments-value/versions": [1, 2],
        "/subjects/Payments-value/versions/1": {"id": 7, "version": 1, "schema": '"string"'},
        "/subjects/Payments-value/versions/2": {"id": 9, "version": 2, "schema": '"double"'},
    }

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(self.answers[self.path]).encode())

    def log_request(self, *_request: object) -> None:
        """Say nothing."""


@pytest.fixture
def registry() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Registry) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_schemas_of_a_subject_are_found_by_their_ids(registry: str, pages: Pages) -> None:
    found = pages["schema_registry"].schemas_of(registry, "Payments-value")
    assert found == {7: '"string"', 9: '"double"'}
