"""What an app refuses when it is declared, each with what to do instead."""

from __future__ import annotations

import faust
import pytest
from support.nodes.apps import collecting

from rocketray.errors import ConfigError
from rocketray.topology.app.app import App


class Order(faust.Record):  # type: ignore[misc]  # Faust's types are not followed
    user: str


@pytest.mark.proves("faust", "`app.LiveCheck`: refused")
def test_what_faust_would_ignore_or_not_finish_is_refused_with_what_to_do_instead() -> None:
    app = App("app")
    with pytest.raises(ConfigError, match=r"rocketray\.testing"):
        app.LiveCheck()
    table = app.Table("t")
    with pytest.raises(ConfigError, match="look the other side up"):
        table.join(Order.user)
    with pytest.raises(ConfigError, match="an app with tables cannot use strategy 'sticky'"):
        app.agent(app.topic("T"), strategy="sticky")(collecting([]))


def test_what_a_pattern_cannot_stand_for_is_refused() -> None:
    app = App("app")
    with pytest.raises(ConfigError, match="names or a pattern, not both"):
        app.topic("T", pattern="T.*")
    with pytest.raises(ConfigError, match="reads itself"):
        app.agent(app.topic(pattern="T.*"), dead_letter="Tx")(collecting([]))
    app.Table("t")
    with pytest.raises(ConfigError, match="an app with tables cannot use topics by pattern"):
        app.agent(app.topic(pattern="T.*"))(collecting([]))


def test_what_an_agent_with_a_handler_for_each_queue_cannot_be_is_refused() -> None:
    app = App("app")
    for channel, options, message in (
        (app.channel(), {}, "needs a topic"),
        (app.topic("T"), {"concurrency": 2}, "leave one of the two out"),
        (app.topic("T"), {"ordered": False}, "retried in its own queue"),
    ):
        with pytest.raises(ConfigError, match=message):
            app.agent(channel, isolated_partitions=True, **options)(collecting([]))


@pytest.mark.proves("faust", "Other strategies: refused")
def test_a_table_is_refused_where_an_agent_divides_queues_otherwise() -> None:
    app = App("app")
    app.agent(app.topic("T"), strategy="by_circle")(collecting([]))
    with pytest.raises(ConfigError, match=r"agent handler: .* strategy 'by_circle'"):
        app.Table("t")


@pytest.mark.proves("faust", '`store="aerospike://"`: refused')
@pytest.mark.parametrize(
    ("store", "message"),
    [
        ("aerospike://h:3000", "cannot release the part of one queue"),
        ("redis://", "neither memory"),
    ],
)
def test_a_store_that_cannot_keep_parts_is_refused_at_configuration(
    store: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        App("app", store=store)
    with pytest.raises(ConfigError, match=f"table 't'.*{message}"):
        App("app").Table("t", store=store)


@pytest.mark.filterwarnings("ignore:Argument .* is deprecated:FutureWarning")  # Faust's own word
def test_names_of_settings_that_faust_has_from_before_still_count() -> None:
    conf = App("app", commit_interval=3.0, default_partitions=2).conf
    assert (conf.broker_commit_interval, conf.topic_partitions) == (3.0, 2)
    with pytest.raises(ConfigError, match="table_standby_replicas"):
        App("app", num_standby_replicas=1).conf  # noqa: B018  # it is configured when it is asked
