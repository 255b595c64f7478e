"""A line that a format wrote is taken apart by the same format."""

from __future__ import annotations

import base64
from pathlib import Path
from random import Random

import pytest
import typer
from support.nodes.stores import SMALL, FakeClock

from rocketray.cli.arguments.line_format import LineFormat, parse_line_format
from rocketray.cli.arguments.message_format import MessageFormat
from rocketray.message import Message
from rocketray.store.message_store import MessageStore
from rocketray.views.outgoing import from_json

FORMATS = ("%g|%k\\t%s\\n", "[%k] %g: %s", "%k\\t%h\\t%s\\n", "%s")


def test_what_one_format_wrote_is_read_again(tmp_path: Path, rng: Random) -> None:
    sent = [
        Message(
            "Trade",
            rng.randbytes(rng.randrange(20)).replace(b"\n", b""),
            rng.choice([None, "pay", "größe"]),
            rng.choices("abc", k=rng.randrange(3)),
            {name: rng.choice("123") for name in rng.choices(["amount", "region"], k=2)},
        )
        for _ in range(20)
    ]
    with MessageStore(tmp_path, SMALL, clock_ms=FakeClock()) as store:
        store.put(sent, 0)
        stored = [*store.reads.scan()]
    for text in FORMATS:
        written, read = MessageFormat(text), parse_line_format(text)
        for message in stored:
            again = from_json("Trade", read.fields(written.of(message))).message
            assert again.body == message.body
            assert "%k" not in text or [*again.keys] == message.keys
            assert "%g" not in text or again.tags == message.tags
            assert "%h" not in text or again.properties.items() <= message.properties.items()


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"k", r"no '\|' after %k"),
        (b"k|\xff|body", "%g is not UTF-8"),
        (b"k|t|body", "no ']' after %s"),
        (b"k|t|body] and more", "9 bytes follow its end"),
    ],
)
def test_a_line_in_another_form_is_refused(line: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        LineFormat("%k|%g|%s]").fields(line)


def test_queues_and_properties_are_checked() -> None:
    read = LineFormat("%p %h %s")
    body = base64.b64encode(b"a b").decode()
    found = read.fields(b"7 a=1,b= a b\n")
    assert found == {"queueId": 7, "properties": {"a": "1", "b": ""}, "body": body}
    assert read.fields(b"  a b") == {"queueId": None, "properties": {}, "body": body}
    for line, why in ((b"x  y", "number of a queue"), (b"1 a y", "'a' has no '='")):
        with pytest.raises(ValueError, match=why):
            read.fields(line)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("%k", "a line has a body"),
        ("%s\t%s", "each token once"),
        ("%k%s", "follow each other"),
        ("%o %s", "%o cannot be sent"),
        ("%k\\n%s", "can only be the last"),
        ("%x", "no token"),
    ],
)
def test_a_format_that_takes_nothing_apart_is_refused(text: str, why: str) -> None:
    with pytest.raises(typer.BadParameter, match=why):
        parse_line_format(text)
