"""A message as a command is sent again as it was, through a real shell; and its trace."""

from __future__ import annotations

import json
import subprocess
from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.harness.amounts import examples
from support.models.message_texts import texts, words

from rocketray.cli.application import main
from rocketray.errors import ConfigError
from rocketray.message import PhysicalOffset, QueueOffset, StoredMessage
from rocketray.views.message_links import check_trace_url, send_again, trace_id_of
from rocketray.views.outgoing import Outgoing, from_json

SHELL = """rocketray() {
  printf '%s\\0' "$@"
  case " $* " in *" --jsonl "*) cat;; esac
}
"""
ID = "7F00000100002A9F0000000000001267"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACE_PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
NAMES = st.text("abcXYZ-_=. é", min_size=1)


def stored(body: bytes, properties: dict[str, str], topic: str = "Trade") -> StoredMessage:
    own = {"UNIQ_KEY": "7F00", "IMPORTED_OFFSET_ID": "AB"}
    host = ("127.0.0.1", 9)
    return StoredMessage(
        topic=topic,
        queue_id=1,
        queue_offset=QueueOffset(17),
        physical_offset=PhysicalOffset(4711),
        size=100,
        body=body,
        properties={**properties, **own},
        offset_message_id=ID,
        flag=0,
        sys_flag=0,
        body_crc=0,
        born_timestamp_ms=1,
        born_host=host,
        store_timestamp_ms=2,
        store_host=host,
        reconsume_times=0,
        prepared_transaction_offset=0,
    )


class SentError(Exception):
    """What the command would send."""


class Producer:
    """Raises what it is given."""

    def send(self, topic: str, body: bytes, **options: Any) -> None:
        raise SentError(topic, body, options)


class Node:
    """A node whose producer is that one."""

    def clock_ms(self) -> int:
        return 0

    def producer(self, **_: object) -> nullcontext[Producer]:
        return nullcontext(Producer())


def through_a_shell(command: str) -> tuple[list[str], str]:
    """Return the arguments that the command gets from a shell, and its input."""
    done = subprocess.run(["sh", "-c", SHELL + command], capture_output=True, check=True)
    *arguments, given = done.stdout.decode().split("\0")
    return arguments, given


def sent_by(command: str, monkeypatch: pytest.MonkeyPatch) -> tuple[str, bytes, dict[str, Any]]:
    """Return the topic, the body and the options of the message that the command sends."""
    arguments, given = through_a_shell(command)
    if given:
        topic = arguments[-1]
        assert given.isascii()
        assert arguments in (["send", "--jsonl", topic], ["send", "--jsonl", "--", topic])
        outgoing: Outgoing = from_json(topic, json.loads(given))
        return topic, outgoing.message.body, {**outgoing.options}
    monkeypatch.setattr("rocketray.cli.messages.send.ask", lambda _, stays: nullcontext(Node()))
    with pytest.raises(SentError) as caught:
        main(arguments)
    topic, body, options = caught.value.args
    return topic, body, options


@st.composite
def messages(draw: st.DrawFn) -> StoredMessage:
    """Messages with any body, tag, keys and properties."""
    body = draw(st.binary(max_size=40) | texts.map(str.encode) | words.map(str.encode))
    properties = draw(st.dictionaries(NAMES, texts | words, max_size=2))
    named = {
        "TAGS": draw(st.none() | words.map(str.strip).filter(bool)),
        "KEYS": " ".join(draw(st.lists(words, max_size=2))),
        "__SHARDINGKEY": draw(st.none() | words),
        "FAUST_KEY": draw(st.sampled_from([None, "base64", "empty"])),
    }
    topic = draw(st.sampled_from(["Trade", "-Trade", "--data", "%RETRY%a|b"]))
    return stored(body, {**properties, **{k: v for k, v in named.items() if v}}, topic)


@examples(200)
@given(messages())
def test_the_command_sends_the_same_message(message: StoredMessage) -> None:
    again = send_again(message)
    with pytest.MonkeyPatch.context() as monkeypatch:
        topic, body, options = sent_by(again.command, monkeypatch)
    own = {"TAGS", "KEYS", "__SHARDINGKEY", "UNIQ_KEY", "IMPORTED_OFFSET_ID"}
    assert (topic, body) == (message.topic, message.body)
    assert (options["tags"], list(options["keys"])) == (message.tags, message.keys)
    assert options["sharding_key"] == message.properties.get("__SHARDINGKEY")
    assert options["properties"] == {k: v for k, v in message.properties.items() if k not in own}
    assert options["unique_key"] is None
    assert again.command.isprintable()


@pytest.mark.parametrize(
    ("body", "properties", "form", "command"),
    [
        (b"paid", {}, "arguments", "rocketray send Trade paid"),
        (
            b"it's $HOME",
            {"TAGS": "pay", "KEYS": "k1", "region": "e u"},
            "arguments",
            """rocketray send --tags=pay --key=k1 '--property=region=e u' Trade 'it'"'"'s $HOME'""",
        ),
        (b"-v", {}, "arguments", "rocketray send -- Trade -v"),
        (
            b"\x1b[201~\nrm -rf /",
            {},
            "json",
            "printf '%s\\n' '{\"text\": \"\\u001b[201~\\nrm -rf /\"}' | rocketray send --jsonl Trade",
        ),
        (
            b"\xff\x00",
            {"KEYS": "k"},
            "base64",
            'printf \'%s\\n\' \'{"keys": ["k"], "body": "/wA="}\' | rocketray send --jsonl Trade',
        ),
        (
            b"x" * 200_000,
            {},
            "query",
            f"rocketray query --json --id {ID} Trade | rocketray send --jsonl Trade",
        ),
    ],
)
def test_each_form(body: bytes, properties: dict[str, str], form: str, command: str) -> None:
    again = send_again(stored(body, properties))
    assert (again.form, again.command) == (form, command)


def digits(size: int) -> st.SearchStrategy[str]:
    return st.sampled_from(["0" * size, "f" * size, "a1" * (size // 2), "A" * size, "g" * size, ""])


@examples(300)
@given(
    version=st.sampled_from(["00", "01", "ff", "0", "000"]),
    trace=digits(32),
    span=digits(16),
    flags=st.sampled_from(["00", "01", "1", "zz"]),
    rest=st.sampled_from(["", "-x", "x", " "]),
)
def test_the_trace_of_a_message_is_that_which_open_telemetry_finds(
    version: str, trace: str, span: str, flags: str, rest: str
) -> None:
    context = pytest.importorskip("rocketray.tracing.message_context")
    text = f"{version}-{trace}-{span}-{flags}{rest}"
    found = context.span_context_of(text, None)
    assert trace_id_of({"traceparent": text}) == (found and f"{found.trace_id:032x}")


def test_a_message_without_a_context_has_no_trace() -> None:
    assert trace_id_of({}) is None
    assert trace_id_of({"traceparent": TRACE_PARENT}) == TRACE


@pytest.mark.parametrize("text", ["", "{trace_id}", "http://a/", "ftp://a/{trace_id}", "http:///{trace_id}", "javascript:{trace_id}"])  # fmt: skip
def test_a_template_is_an_address_with_a_place_for_the_id(text: str) -> None:
    with pytest.raises(ConfigError, match="such as http://localhost:16686"):
        check_trace_url(text)
    assert check_trace_url("https://a/{trace_id}?x") == "https://a/{trace_id}?x"
