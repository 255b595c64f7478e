"""The options of a write: what each accepts, and what is said where one cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketray.base.cluster import Cluster
from rocketray.errors import ConfigError, InvalidMessageError, InvalidNameError
from rocketray.queries.spark.source_options import may_be_writing
from rocketray.queries.spark.writer_options import WriterOptions, parse_writer_options

pytestmark = pytest.mark.proves("spark", "The options of a write")


def parse(is_stream: bool = False, **options: str) -> WriterOptions:
    return parse_writer_options(options, {}, is_stream=is_stream)


def test_the_defaults_are_exactly_once_and_our_columns() -> None:
    found = parse(topic="Out", data="/d")
    assert found == WriterOptions("Out", "exactly_once", None, None, "rocketray", Path("/d"))
    assert parse(data="/d").topic is None


def test_every_option_is_read_whatever_its_case() -> None:
    found = parse(
        TOPIC="Out", Guarantee="EXACTLY_ONCE", txnappid="app", TXNVERSION="7", Columns="kafka",
        ACK="disk", cluster="c", rayaddress="h:1",
    )  # fmt: skip
    assert found == WriterOptions("Out", "exactly_once", "app", 7, "kafka", Cluster("c", "h:1"))
    assert parse(guarantee="at_least_once", data="/d").guarantee == "at_least_once"


def test_what_spark_adds_for_a_stream_is_left_to_spark() -> None:
    found = parse(True, topic="Out", checkpointLocation="c", queryName="q", txnAppId="a", data="/d")
    assert (found.app_id, found.version) == ("a", None)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"guarantee": "once"}, "write exactly_once or at_least_once"),
        ({"ack": "memory"}, "write disk; what Spark writes is on disk when its batch ends"),
        ({"columns": "all"}, "write rocketray or kafka"),
        ({"txnAppId": "a"}, "txnAppId and txnVersion go together"),
        ({"txnVersion": "1"}, "txnAppId and txnVersion go together"),
        ({"txnAppId": "a", "txnVersion": "-1"}, "a whole number from 0 on"),
        ({"txnAppId": "a/b", "txnVersion": "1"}, "txnAppId='a/b': it has 1 to 100 ASCII letters"),
        ({"txnAppId": "a", "guarantee": "at_least_once"}, "txnAppId goes with guarantee"),
        ({"topics": "a"}, "did you mean topic"),
        ({"startingOffsets": "latest"}, "option 'startingOffsets' is for reading"),
        ({"path": "x"}, "not one of this writer: rows go into a topic and not into a directory"),
        ({"kafka.acks": "all"}, "on disk when its batch ends"),
        ({"kafka.transactional.id": "x"}, "its name here is txnAppId"),
        ({"kafka.bootstrap.servers": "x"}, "data names the node's data directory"),
        ({"kafka.linger.ms": "x"}, "not one of this writer: it configures a client of Kafka"),
        ({"data": "/d", "cluster": "c"}, "name one"),
    ],
)
def test_an_option_that_cannot_be_is_refused_with_what_to_do(
    options: dict[str, str], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_writer_options(options, {}, is_stream=False)


def test_a_stream_numbers_its_batches_itself() -> None:
    with pytest.raises(ConfigError, match="a stream numbers its batches itself"):
        parse(True, txnAppId="a", txnVersion="1")


def test_a_topic_that_cannot_be_written_is_refused() -> None:
    with pytest.raises(InvalidNameError):
        parse(topic="a b")
    with pytest.raises(InvalidMessageError):
        parse(topic="SCHEDULE_TOPIC_XXXX")


def test_a_write_is_not_told_of_the_options_of_a_source() -> None:
    assert may_be_writing({"topic": "T", "guarantee": "at_least_once"})
    assert may_be_writing({"topic": "T", "topics": "T"})
