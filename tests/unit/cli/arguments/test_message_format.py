"""A format writes what its tokens say, and bodies as they are."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from support.nodes.stores import SMALL, FakeClock

from rocketray.cli.arguments.message_format import MessageFormat, parse_format
from rocketray.message import Message, StoredMessage
from rocketray.store.message_store import MessageStore


@pytest.fixture
def message(tmp_path: Path) -> StoredMessage:
    sent = Message("Trade", b"\xff\x00 body", "pay", ("a", "b"), {"amount": "1", "größe": "2"})
    with MessageStore(tmp_path, SMALL, clock_ms=FakeClock()) as store:
        store.put([sent], 3)
        [stored] = store.reads.scan()
    return stored


def test_each_token_is_a_part_of_the_message(message: StoredMessage) -> None:
    written = MessageFormat("%t %p@%o %g [%k] %S%%\\t%s\\n\\\\").of(message)
    assert written == b"Trade 3@0 pay [a b] 7%\t\xff\x00 body\n\\"
    assert MessageFormat("%T").of(message) == b"%d" % message.store_timestamp_ms
    assert MessageFormat("%i").of(message) == message.offset_message_id.encode()
    properties = MessageFormat("%h").of(message).decode()
    assert {"amount=1", "größe=2", "TAGS=pay", "KEYS=a b"} <= set(properties.split(","))
    assert MessageFormat("größe%u").of(message) == "größe".encode()  # it has no unique key


@pytest.mark.parametrize("text", ["%x", "100%", "a\\q", "\\", "x" * 5000])
def test_what_is_no_format_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match=r"token|characters"):
        parse_format(text)
