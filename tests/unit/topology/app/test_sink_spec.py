from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from rocketray.errors import ConfigError, FilterSyntaxError, InvalidNameError
from rocketray.filters.filter_name import FilterName
from rocketray.filters.subscription import Subscription
from rocketray.topology.app.sink_spec import SinkSpec, add_sink


def lake(frame: Any) -> Any:
    return frame


def spec(**changes: Any) -> SinkSpec:
    given: dict[str, Any] = {"name": "lake", "function": lake, "topic": "Trade"} | changes
    return SinkSpec(**given)


@pytest.mark.proves("spark", "The options `max_rows`, `starting_offsets` and `options` of a sink")
def test_the_source_gets_what_was_declared() -> None:
    assert spec(tags="pay", max_rows=10, options={"longPollMs": "5"}).source_options() == {
        "topic": "Trade",
        "tags": "pay",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "10",
        "longPollMs": "5",
    }


@pytest.mark.proves("spark", "Triggers")
@pytest.mark.parametrize(
    ("trigger", "expected"),
    [
        ("5 seconds", {"processingTime": "5 seconds"}),
        (" 100  Milliseconds", {"processingTime": "100 milliseconds"}),
        ("available now", {"availableNow": True}),
        ("availableNow", {"availableNow": True}),
    ],
)
def test_triggers_are_read(trigger: str, expected: dict[str, Any]) -> None:
    assert spec(trigger=trigger).trigger_arguments() == expected


@pytest.mark.proves("spark", "The number of arguments selects the kind of sink")
def test_the_number_of_arguments_says_which_kind_it_is() -> None:
    assert not spec().is_foreach_batch
    assert spec(function=lambda frame, batch_id: None).is_foreach_batch


@pytest.mark.proves("spark", "A sink's filter is checked where it is declared")
@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"name": "a/b"}, ConfigError, "a sink's name"),
        ({"topic": "a.b"}, InvalidNameError, "topic 'a.b'"),
        ({"tags": "a", "sql": "a > 1"}, ConfigError, "both tags and sql"),
        ({"tags": "a", "dialect": "rocketray"}, ConfigError, "is for SQL"),
        ({"sql": "a >"}, FilterSyntaxError, "a >"),
        ({"tags": "||"}, FilterSyntaxError, "needs a tag"),
        ({"trigger": "soon"}, ConfigError, "trigger='soon'; write an interval"),
        ({"max_rows": 0}, ConfigError, "max_rows is 0"),
        ({"function": lambda: None}, ConfigError, "takes 0 arguments"),
    ],
)
def test_a_wrong_declaration_is_refused_where_it_stands(
    changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        spec(**changes)


def test_the_dialect_goes_to_spark_where_it_is_not_rocketmqs() -> None:
    extended = spec(sql="a LIKE 'x'", dialect="rocketray")
    assert extended.source_options()["dialect"] == "rocketray"
    assert extended.chosen_filter() == Subscription.sql(extended.sql or "")
    assert "dialect" not in spec(sql="a = 1").source_options()


def test_a_sink_may_name_a_filter_of_its_topic() -> None:
    named = spec(filter="large@2")
    assert named.chosen_filter() == FilterName("large", 2)
    assert named.source_options()["filter"] == "large@2"
    with pytest.raises(ConfigError, match=r"names a whole filter.*leave out tags"):
        spec(filter="large", tags="pay")
    with pytest.raises(ConfigError, match="filter='large', which is of one topic: name one"):
        spec(filter="large", topic="Trade,Order")


@pytest.mark.proves("spark", "Names and checkpoints of sinks are unique")
def test_two_sinks_share_neither_name_nor_checkpoint() -> None:
    sinks: dict[str, SinkSpec] = {}
    add_sink(sinks, spec(checkpoint="c"))

    with pytest.raises(ConfigError, match="has a sink 'lake' already"):
        add_sink(sinks, spec())
    with pytest.raises(ConfigError, match="have the same checkpoint, c"):
        add_sink(sinks, spec(name="other", checkpoint="c"))
    assert list(sinks) == ["lake"]


def test_declaring_a_sink_does_not_import_pyspark() -> None:
    code = "import sys, rocketray.topology.app.sink_spec; print('pyspark' in sys.modules)"

    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"
