"""The overview, and the samples that its rates come from."""

from __future__ import annotations

import html
from collections.abc import Iterator

import pytest
from support.nodes.console_client import ConsoleClient
from support.nodes.console_node import COUNT, console_node
from support.nodes.local_node import LocalNode

from rocketray.console.facts.samples import Samples, TopicSample
from rocketray.errors import ShardUnavailableError
from rocketray.services.health.health import read_health
from rocketray.services.health.troubles import troubles_of
from rocketray.views.trouble_records import trouble_record


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNode]:
    with console_node(tmp_path_factory.mktemp("node")) as node:
        yield node


@pytest.fixture(scope="module")
def console(node: LocalNode) -> Iterator[ConsoleClient]:
    with ConsoleClient(node.data, lambda: node) as console:
        yield console


def test_samples_give_rates_and_lags(node: LocalNode, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 100_000, 10_000))
    samples = Samples(lambda: next(clock))
    samples.take(node)
    assert samples.rate("Trade") is None
    samples.take(node)
    assert samples.rate("Trade") == 0
    samples.topics["Trade"].append(TopicSample(20_000, COUNT + 100))
    assert samples.rate("Trade") == pytest.approx(5.0)
    assert [lag for _, lag in samples.series("large", "Trade")] == [COUNT - 41] * 2
    samples.topics["Trade"].append(TopicSample(30_000, None))
    assert samples.rate("Trade") is None, "0 would say that nothing is stored"
    assert samples.finish_rate("audit", "Trade") == 0
    assert samples.growth() == dict.fromkeys(samples.lags, 0.0)
    assert [rate for _, rate in samples.stored_series("Trade")] == [0, pytest.approx(10.0), None]

    def silent(*_: object) -> None:
        raise ShardUnavailableError("shard Trade/1", "its disk is away")

    with monkeypatch.context() as patched:
        patched.setattr(node, "process_calls", silent)
        samples.take(node)
    assert samples.topics["Trade"][-1].end is None, "one of its processes is not known"


def test_the_overview_begins_with_what_is_wrong(console: ConsoleClient, node: LocalNode) -> None:
    record = console.get("/overview.json").record
    found = troubles_of(read_health(node))
    assert record["troubles"] == [trouble_record(one) for one in found]
    assert [one["kind"] for one in record["troubles"]].count("letters") == 1
    assert record["looked"]["letters"] == 5
    page = html.unescape(console.get("/").text)
    for trouble in found:
        assert trouble.text in page
        assert trouble.advice in page
    groups = {row["group"]: row for row in record["groups"]}
    assert groups["large"]["lag"] == COUNT - 41
    assert console.get("/?topic=Trade").headers["Location"] == "/tail?topic=Trade"
