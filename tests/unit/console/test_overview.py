"""The overview, and the samples that its rates come from."""

from __future__ import annotations

import html
import re

import pytest
from support.harness.patience import wait_until
from support.nodes.console_client import ConsoleClient
from support.nodes.console_node import COUNT
from support.nodes.local_node import LocalNode

from rocketray.broker.retries.dead_letter_api import LetterBox
from rocketray.console.facts.samples import Samples, TopicSample
from rocketray.console.pages.badges import Badge, badges_of
from rocketray.console.pages.page_texts import text_in
from rocketray.errors import ShardUnavailableError
from rocketray.services.health.health import read_health
from rocketray.services.health.node_readings import read_node
from rocketray.services.health.troubles import Trouble, TroubleKind, troubles_of
from rocketray.views.trouble_records import trouble_record


def test_samples_give_rates_and_lags(node: LocalNode, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 100_000, 10_000))
    samples = Samples(lambda: next(clock))
    samples.note(node.topics.all(), read_node(node))
    assert samples.rate("Trade") is None
    samples.note(node.topics.all(), read_node(node))
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
        samples.note(node.topics.all(), read_node(node))
    assert samples.topics["Trade"][-1].end is None, "one of its processes is not known"


def test_the_overview_begins_with_what_is_wrong(console: ConsoleClient, node: LocalNode) -> None:
    record = console.get("/overview.json").record
    found = troubles_of(read_health(node))
    assert record["troubles"] == [trouble_record(one) for one in found]
    assert [one["kind"] for one in record["troubles"]].count("letters") == 1
    assert record["more"] == {"troubles": 0, "topics": 0, "groups": 0}
    page = html.unescape(console.get("/").text)
    for trouble in found:
        assert trouble.text in page
        assert trouble.advice in page
    groups = {row["group"]: row for row in record["groups"]}
    assert groups["large"]["lag"] == COUNT - 41
    assert console.get("/?topic=Trade").headers["Location"] == "/tail?topic=Trade"


def test_the_overview_says_how_much_it_leaves_out(
    console: ConsoleClient, node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    boxes = [LetterBox(f"g{number}", f"%DLQ%g{number}", 1, 0) for number in range(60)]
    monkeypatch.setattr("rocketray.services.health.health.letter_boxes", lambda _: boxes)
    monkeypatch.setattr("rocketray.console.pages.overview_page._ROWS_MAX", 1)
    record = console.get("/overview.json").record
    found = len(troubles_of(read_health(node)))
    assert len(record["troubles"]) == 50
    assert record["more"] == {"troubles": found - 50, "topics": 1, "groups": 1}
    page = console.get("/").text
    for key in ("more.topics", "more.groups"):
        assert text_in("en", key, count=1) in page
    assert text_in("en", "wrong.more", count=found - 50) in page


def test_the_menu_counts_what_is_wrong_by_page(console: ConsoleClient) -> None:
    wait_until(lambda: 'title="not known' not in console.get("/groups").text)
    page = console.get("/tail").text
    assert re.findall(r'href="/letters">[^<]+ <span class="badge" title="wrong: (\d+)">', page) == [
        "1"
    ]
    assert "badge" not in page[page.index('href="/topics"') : page.index('href="/groups"')]


def test_each_kind_of_trouble_is_counted_at_the_page_that_shows_it() -> None:
    troubles = [Trouble(kind, "") for kind in TroubleKind]
    assert badges_of(troubles) == {
        "node": Badge(2, is_error=True),
        "apps": Badge(1, is_error=True),
        "groups": Badge(5, is_error=True),
        "letters": Badge(1),
    }
    unknown = dict.fromkeys(("node", "apps", "groups", "letters"), Badge(None))
    assert badges_of(None) == unknown, "it is not nothing"
    assert badges_of([]) == {}
