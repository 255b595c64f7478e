from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from rocketray.cluster import Cluster
from rocketray.errors import ConfigError, FilterSyntaxError, InvalidNameError
from rocketray.filters.subscription import Subscription
from rocketray.topology.spark.offset_rules import EARLIEST, LATEST, OffsetRule
from rocketray.topology.spark.source_options import (
    OPTION_NAMES,
    SourceOptions,
    may_be_writing,
    parse_options,
)


def parsed(**options: str) -> SourceOptions:
    return parse_options(CaseInsensitiveDict({"topic": "Trade"} | options), {})


def test_the_defaults_read_everything() -> None:
    assert parsed() == SourceOptions(
        topics=("Trade",),
        subscription=Subscription.tags("*"),
        node=Path("rocketray-data").absolute(),
        starting=None,
        ending=None,
        max_offsets_per_trigger=None,
        long_poll_ms=500,
        arrow_batch_rows=20_000,
        fail_on_data_loss=True,
        allow_filter_change=False,
    )


def test_every_option_is_read_whatever_its_case() -> None:
    options = parsed(
        TOPIC="Trade , Other",
        SQL="a > 1",
        StartingOffsets="latest",
        endingoffsets='{"Trade": {"1": 5}}',
        maxoffsetspertrigger="7",
        DATA="/data",
        longpollms="0",
        ArrowBatchRows="3",
        failondataloss="FALSE",
        allowfilterchange="true",
    )

    assert options == SourceOptions(
        topics=("Trade", "Other"),
        subscription=Subscription.sql("a > 1"),
        node=Path("/data"),
        starting=OffsetRule(LATEST, {}),
        ending=OffsetRule(LATEST, {("Trade", 1): 5}),
        max_offsets_per_trigger=7,
        long_poll_ms=0,
        arrow_batch_rows=3,
        fail_on_data_loss=False,
        allow_filter_change=True,
    )


def test_queues_that_a_start_does_not_name_start_at_their_first_message() -> None:
    starting = parsed(startingOffsets='{"Trade": {"1": 5}}').starting

    assert starting == OffsetRule(EARLIEST, {("Trade", 1): 5})


def test_rows_is_another_word_for_offsets() -> None:
    assert parsed(maxRowsPerTrigger="9").max_offsets_per_trigger == 9
    with pytest.raises(ConfigError, match="another name"):
        parsed(maxRowsPerTrigger="9", maxOffsetsPerTrigger="9")


def test_a_cluster_takes_the_place_of_a_data_directory() -> None:
    assert parsed(cluster="orders").node == Cluster("orders")
    named = parsed(cluster="orders", rayAddress="10.0.0.1:6379")
    assert named.node == Cluster("orders", "10.0.0.1:6379")
    assert parse_options({"topic": "T"}, {"ROCKETRAY_CLUSTER": "o"}).node == Cluster("o")
    with pytest.raises(ConfigError, match="are both given; name one"):
        parsed(cluster="orders", data="/data")
    with pytest.raises(ConfigError, match="give the cluster's name, too"):
        parsed(rayAddress="10.0.0.1:6379")


def test_the_environment_names_the_data_unless_an_option_does() -> None:
    environ = {"ROCKETRAY_DATA": "/from/environment"}

    assert parse_options({"topic": "T"}, environ).node == Path("/from/environment")
    assert parse_options({"topic": "T", "data": "here"}, environ).node == Path("here").absolute()


@pytest.mark.parametrize("name", OPTION_NAMES)
def test_a_slip_of_the_pen_names_the_option_that_was_meant(name: str) -> None:
    with pytest.raises(ConfigError, match=f"did you mean {name}"):
        parsed(**{name[:-1] + "x" + name[-1]: "1"})


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"qqqqqqq": "1"}, ConfigError, "unknown option 'qqqqqqq'; The options are topic"),
        ({"path": "Trade"}, ConfigError, r"load\(\) takes no path"),
        ({"allowFilterChange": "yes"}, ConfigError, "write true or false"),
        ({"topic": "a.b"}, InvalidNameError, "not allowed"),
        ({"topic": ""}, InvalidNameError, "empty"),
        ({"topic": "A,A"}, ConfigError, "names a topic twice"),
        ({"topic": ",".join(f"T{n}" for n in range(1001))}, ConfigError, "1001 topics"),
        ({"tags": "a", "sql": "b = 1"}, ConfigError, "both tags and sql"),
        ({"sql": "a LIKE 'x'", "dialect": "rocketmq"}, FilterSyntaxError, "rocketray"),
        ({"sql": "a = 1", "dialect": "x"}, ConfigError, "give 'rocketray' or 'rocketmq'"),
        ({"tags": "a", "dialect": "rocketray"}, ConfigError, "leave it out"),
        ({"sql": "a ="}, FilterSyntaxError, "a ="),
        ({"sql": ""}, FilterSyntaxError, "end of the expression"),
        ({"startingOffsets": "first"}, ConfigError, "startingOffsets='first': write earliest"),
        ({"maxOffsetsPerTrigger": "0"}, ConfigError, "maxOffsetsPerTrigger='0': write a whole"),
        ({"longPollMs": "60001"}, ConfigError, "from 0 to 60000"),
        ({"arrowBatchRows": "many"}, ConfigError, "arrowBatchRows='many'"),
        ({"failOnDataLoss": "no"}, ConfigError, "failOnDataLoss='no': write true or false"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused(
    options: dict[str, str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        parsed(**options)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("subscribe", 'its name here is topic: .option("topic"'),
        ("maxTriggerDelay", "has no minimum size; give the trigger a longer interval"),
        ("kafka.bootstrap.servers", "data names the node's data directory"),
        ("kafka.security.protocol", "data names the node's data directory"),
        ("kafka.group.id", "belongs to no group"),
        ("minPartitions", "a topic with more queues gives more tasks"),
        ("checkpointLocation", "belongs to writeStream"),
        ("nameServer", "data names the node's data directory"),
        ("where", "filter further with .where"),
    ],
)
def test_an_option_of_another_connector_is_answered_with_its_reason(name: str, says: str) -> None:
    told = f"option '{name}' is not one of this source: .*{re.escape(says)}"
    with pytest.raises(ConfigError, match=told):
        parsed(**{name: "x"})


def test_what_is_like_nothing_is_not_guessed_at() -> None:
    with pytest.raises(ConfigError, match="unknown option 'failontuesdays'; The options are"):
        parsed(failOnTuesdays="1")


def test_options_that_a_writer_may_have_are_not_judged_before_it_is_known() -> None:
    assert may_be_writing({"topic": "T", "checkpointLocation": "x"})
    assert may_be_writing({"TOPIC": "T", "Path": "x"})
    assert may_be_writing({})
    assert not may_be_writing({"Topic": "T", "tags": "a"})


def test_a_topic_is_needed() -> None:
    with pytest.raises(ConfigError, match="the topic is missing"):
        parse_options({}, {})
