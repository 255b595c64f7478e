from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from rocketray.base.cluster import Cluster
from rocketray.errors import ConfigError, FilterSyntaxError, InvalidNameError, PredicateError
from rocketray.filters.filter_name import FilterName
from rocketray.filters.subscription import Subscription
from rocketray.queries.ranges.division import Division
from rocketray.queries.ranges.offset_rules import EARLIEST, LATEST, OffsetRule
from rocketray.queries.ranges.time_rules import TimeRule
from rocketray.queries.ranges.topic_choice import assigned, matching, named
from rocketray.queries.spark.source_options import (
    OPTION_NAMES,
    BatchLimits,
    SourceOptions,
    may_be_writing,
    parse_options,
)


def parsed(**options: str) -> SourceOptions:
    return parse_options(CaseInsensitiveDict({"topic": "Trade"} | options), {})


def test_the_defaults_read_everything() -> None:
    assert parsed() == SourceOptions(
        choice=named("Trade"),
        columns="rocketray",
        has_headers=False,
        filter=Subscription.tags("*"),
        node=Path("rocketray-data").absolute(),
        starting=None,
        ending=None,
        limits=BatchLimits(),
        division=Division(),
        long_poll_ms=500,
        arrow_batch_rows=20_000,
        fail_on_data_loss=True,
        allow_filter_change=False,
        given=frozenset({"topic"}),
    )


@pytest.mark.proves("spark", "Option names ignore case")
def test_every_option_is_read_whatever_its_case() -> None:
    options = parsed(
        TOPIC="Trade , Other",
        SQL="a > 1",
        StartingOffsets="latest",
        endingoffsets='{"Trade": {"1": 5}}',
        maxoffsetspertrigger="7",
        minpartitions="3",
        COLUMNS="Kafka",
        includeheaders="true",
        MaxRecordsPerPartition="1000",
        DATA="/data",
        longpollms="0",
        ArrowBatchRows="3",
        failondataloss="FALSE",
        allowfilterchange="true",
    )

    assert replace(options, given=frozenset()) == SourceOptions(
        choice=named("Trade,Other"),
        columns="kafka",
        has_headers=True,
        filter=Subscription.sql("a > 1"),
        node=Path("/data"),
        starting=OffsetRule(LATEST, {}),
        ending=OffsetRule(LATEST, {("Trade", 1): 5}),
        limits=BatchLimits(most=7),
        division=Division(3, 1000),
        long_poll_ms=0,
        arrow_batch_rows=3,
        fail_on_data_loss=False,
        allow_filter_change=True,
        given=frozenset(),
    )


@pytest.mark.proves("spark", "The option `startingOffsets`")
def test_queues_that_a_start_does_not_name_start_at_their_first_message() -> None:
    starting = parsed(startingOffsets='{"Trade": {"1": 5}}').starting

    assert starting == OffsetRule(EARLIEST, {("Trade", 1): 5})


@pytest.mark.proves(
    "spark",
    "The options `subscribe`, `subscribePattern` and `maxRowsPerTrigger` are other names",
)
@pytest.mark.parametrize(
    ("other", "own", "text"),
    [
        ("subscribe", "topic", "Other"),
        ("subscribePattern", "topicPattern", "Tr.*"),
        ("maxRowsPerTrigger", "maxOffsetsPerTrigger", "9"),
    ],
)
def test_an_option_has_the_name_that_users_of_kafka_or_spark_know(
    other: str, own: str, text: str
) -> None:
    topic = {} if "ubs" in other else {"topic": "Trade"}
    by_other, by_own = (parse_options({name: text, **topic}, {}) for name in (other, own))

    assert by_other.limits == by_own.limits
    assert replace(by_other.choice, text="") == replace(by_own.choice, text="")
    with pytest.raises(ConfigError, match=f"{other} is another name of {own}; give one"):
        parse_options({other: text, own: text, **topic}, {})


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"subscribePattern": "Tr["}, r"^subscribePattern='Tr\['"),
        ({"topicPattern": "Tr["}, r"^topicPattern='Tr\['"),
        ({"subscribe": "a,a"}, r"^subscribe='a,a' names a topic twice"),
        ({"topic": "a,a"}, r"^topic='a,a' names a topic twice"),
        ({"subscribe": "a", "assign": "{}"}, "^subscribe and assign are both given"),
        ({"topic": "a", "maxRowsPerTrigger": "0"}, "^maxRowsPerTrigger='0'"),
        (
            {"topic": "a", "maxRowsPerTrigger": "1", "minOffsetsPerTrigger": "2"},
            "^minOffsetsPerTrigger=2 is more than maxRowsPerTrigger=1$",
        ),
    ],
)
def test_an_error_has_the_name_that_the_user_wrote(options: dict[str, str], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        parse_options(options, {})


def test_what_a_pattern_matches_is_named_by_the_option_as_it_was_written() -> None:
    for name in ("subscribe", "subscribePattern"):
        assert parse_options({name: "Trade"}, {}).choice.text == f"{name} = Trade"


@pytest.mark.proves("spark", "The option `where`")
def test_a_filter_may_be_a_predicate() -> None:
    where = "support.predicates:body_is_short"
    assert parsed(where=where).filter == Subscription.where(where)


def test_a_filter_may_be_a_name() -> None:
    assert parsed(filter="large@2").filter == FilterName("large", 2)
    for more, said in (
        ({"tags": "a"}, "^tags and filter are both given"),
        ({"sql": "a = 1"}, "^sql and filter are both given"),
        ({"dialect": "rocketmq"}, "^a named filter has its dialect"),
        ({"topic": "Trade,Order"}, "^filter='large' is of one topic, and the query reads topic ="),
    ):
        with pytest.raises(ConfigError, match=said):
            parse_options({"topic": "Trade", "filter": "large", **more}, {})


@pytest.mark.proves("spark", "Two options for one thing are an error")
def test_topics_are_named_matched_or_assigned() -> None:
    assert parse_options({"topicPattern": "Tr.*"}, {}).choice == matching("Tr.*")
    assert parse_options({"assign": '{"T": [1]}'}, {}).choice == assigned('{"T": [1]}')
    with pytest.raises(ConfigError, match="topic and assign are both given; give one"):
        parsed(assign='{"T": [1]}')


def test_a_start_or_end_is_a_time_of_all_queues_or_of_named_ones() -> None:
    assert parsed(startingTimestamp="17").starting == TimeRule(
        "startingTimestamp", 17, {}, EARLIEST, is_strict=True
    )
    by_queue = parsed(
        startingOffsetsByTimestamp='{"Trade": {"1": 5}}',
        startingOffsetsByTimestampStrategy="latest",
    )
    assert by_queue.starting == TimeRule(
        "startingOffsetsByTimestamp", None, {("Trade", 1): 5}, EARLIEST
    )
    assert parsed(endingTimestamp="17").ending == TimeRule("endingTimestamp", 17, {}, LATEST)
    ending = parsed(endingOffsetsByTimestamp='{"Trade": {"0": 3}}').ending
    assert ending == TimeRule("endingOffsetsByTimestamp", None, {("Trade", 0): 3}, LATEST)


def test_a_micro_batch_has_limits_and_a_delay() -> None:
    options = {"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "9"}
    assert parsed(**options).limits == BatchLimits(9, 5, 900)
    for text, delay_s in (("1500", 1.5), ("500ms", 0.5), ("2 Min", 120), ("1h", 3600)):
        assert parsed(**options, maxTriggerDelay=text).limits == BatchLimits(9, 5, delay_s)


@pytest.mark.proves("spark", "The options `cluster` and `rayAddress`")
def test_a_cluster_takes_the_place_of_a_data_directory() -> None:
    assert parsed(cluster="orders").node == Cluster("orders")
    named = parsed(cluster="orders", rayAddress="10.0.0.1:6379")
    assert named.node == Cluster("orders", "10.0.0.1:6379")
    assert parse_options({"topic": "T"}, {"ROCKETRAY_CLUSTER": "o"}).node == Cluster("o")
    with pytest.raises(ConfigError, match="are both given; name one"):
        parsed(cluster="orders", data="/data")
    with pytest.raises(ConfigError, match="give the cluster's name, too"):
        parsed(rayAddress="10.0.0.1:6379")


@pytest.mark.proves("spark", "The option `data`")
def test_the_environment_names_the_data_unless_an_option_does() -> None:
    environ = {"ROCKETRAY_DATA": "/from/environment"}

    assert parse_options({"topic": "T"}, environ).node == Path("/from/environment")
    assert parse_options({"topic": "T", "data": "here"}, environ).node == Path("here").absolute()


@pytest.mark.proves("spark", "The error of an unknown option names the nearest one")
@pytest.mark.parametrize("name", OPTION_NAMES)
def test_a_slip_of_the_pen_names_the_option_that_was_meant(name: str) -> None:
    with pytest.raises(ConfigError, match=f"did you mean {name}"):
        parsed(**{name[:-1] + "x" + name[-1]: "1"})


@pytest.mark.proves("spark", "The option `dialect`")
@pytest.mark.proves("spark", "Two options for one thing are an error")
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"qqqqqqq": "1"}, ConfigError, "unknown option 'qqqqqqq'; the options are topic"),
        ({"path": "/store", "data": "/data"}, ConfigError, "path and data are both given"),
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
        ({"startingTimestamp": "1", "startingOffsets": "latest"}, ConfigError, "are both given"),
        ({"startingTimestamp": "-1"}, ConfigError, "milliseconds since 1970"),
        ({"startingTimestamp": "2026-01-01"}, ConfigError, "milliseconds since 1970"),
        ({"startingOffsetsByTimestamp": "17 h"}, ConfigError, 'like {"Trade":{"0":17672'),
        ({"startingOffsetsByTimestampStrategy": "latest"}, ConfigError, "goes with startingTime"),
        (
            {"startingTimestamp": "1", "startingOffsetsByTimestampStrategy": "first"},
            ConfigError,
            "write error or latest",
        ),
        (
            {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"},
            ConfigError,
            "minOffsetsPerTrigger=9 is more than maxOffsetsPerTrigger=5",
        ),
        ({"maxTriggerDelay": "5m"}, ConfigError, "goes with minOffsetsPerTrigger"),
        (
            {"maxTriggerDelay": "soon", "minOffsetsPerTrigger": "5"},
            ConfigError,
            "such as 500ms, 30s or 15m",
        ),
        ({"tags": "a", "where": "support.predicates:body_is_short"}, ConfigError, "are both given"),
        ({"where": "body_is_short"}, PredicateError, "not of the form 'module:callable'"),
        ({"columns": "body"}, ConfigError, "write rocketray or kafka; single columns are"),
        ({"includeHeaders": "true"}, ConfigError, "goes with columns=kafka"),
        ({"minPartitions": "0"}, ConfigError, "minPartitions='0': write a whole"),
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


@pytest.mark.proves("spark", "The error of another connector's option says what to do")
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("kafka.bootstrap.servers", "data names the node's data directory"),
        ("kafka.isolation.level", "it configures a client of Kafka, which is not used here; data"),
        ("kafka.group.id", "belongs to no group"),
        ("checkpointLocation", "belongs to writeStream"),
        ("nameServer", "data names the node's data directory"),
    ],
)
def test_an_option_of_another_connector_is_answered_with_its_reason(name: str, says: str) -> None:
    told = f"option '{name}' is not one of this source: .*{re.escape(says)}"
    with pytest.raises(ConfigError, match=told):
        parsed(**{name: "x"})


def test_what_is_like_nothing_is_not_guessed_at() -> None:
    with pytest.raises(ConfigError, match="unknown option 'failontuesdays'; the options are"):
        parsed(failOnTuesdays="1")


def test_options_that_a_writer_may_have_are_not_judged_before_it_is_known() -> None:
    assert may_be_writing({"topic": "T", "checkpointLocation": "x"})
    assert may_be_writing({"TOPIC": "T", "Path": "x"})
    assert may_be_writing({})
    assert not may_be_writing({"Topic": "T", "tags": "a"})


@pytest.mark.proves("spark", "The option `topic`")
def test_a_topic_is_needed() -> None:
    with pytest.raises(ConfigError, match="the topic is missing"):
        parse_options({}, {})
