"""What an app declares wrongly is refused when it is declared, with the name that was meant."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import rocketray as rr
from rocketray.actors.cluster.node import Node
from rocketray.errors import ConfigError, StreamError

Declare = Callable[[], object]


def sync_handler(stream: Any) -> None:
    """Not an agent."""


async def handler(stream: Any) -> None:
    async for _ in stream:
        pass


async def answering(stream: Any) -> AsyncIterator[Any]:
    async for value in stream:
        yield value


class Handler:
    async def __call__(self, stream: Any) -> None:
        async for _ in stream:
            pass


APPS: list[tuple[Declare, str]] = [
    (lambda: rr.App("x", brokr="x"), r"has no setting brokr=; did you mean broker=\?"),
    (lambda: rr.App("x", flo=None), r"no setting flo=; did you mean flow=\?"),
    (lambda: rr.App("x", topic_partition=4), r"did you mean topic_partitions=\?"),
    (lambda: rr.App("x", zzzzzz=4), "no setting zzzzzz=; see docs"),
    (lambda: rr.App("x", broker="kafka://localhost"), "broker='kafka://localhost': .* leave bro"),
    (lambda: rr.App("x", broker="localhost:9092"), "broker='localhost:9092'"),
    (lambda: rr.App("x", broker=["kafka://a", "kafka://b"]), "broker='kafka://a'"),
    (lambda: rr.App("x", broker="rocketray:///data"), "name the node's data directory with data="),
    (lambda: rr.App("x", data=5), "the data directory is 5"),  # type: ignore[arg-type]
    (lambda: rr.App(""), "the id of an app is ''; give a name"),
    (lambda: rr.App(5), "the id of an app is 5"),  # type: ignore[arg-type]
    (lambda: rr.App("x", connection="./data"), "name a data directory with data="),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("declare", "says"), APPS)
def test_an_app_that_cannot_be_is_refused(declare: Declare, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        declare()


def test_the_broker_of_the_environment_is_checked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    app = rr.App("x", broker="rocketray://", topic_partitions=2, version=1, monitor=None)
    assert app.conf.topic_partitions == 2
    monkeypatch.setenv("BROKER_URL", "kafka://localhost")
    with pytest.raises(ConfigError, match="broker='kafka://localhost'"):
        rr.App("y").conf  # noqa: B018  # Faust reads the environment when it is asked


@pytest.mark.parametrize("function", [sync_handler, lambda stream: None, len, 5])
def test_an_agent_is_an_async_function(function: Any) -> None:
    app = rr.App("x")
    with pytest.raises(ConfigError, match="is not an async function; write: async def"):
        app.agent(app.topic("T"), name="n")(function)
    assert "n" not in app.agents


async def lonely() -> None: ...


async def pair(stream: Any, table: Any) -> None: ...


AGENTS: list[tuple[Callable[[rr.App], object], str]] = [
    (
        lambda app: app.agent(handler),
        r"was given the function 'handler' .* write: @app.agent\(topic",
    ),
    (lambda app: app.agent([app.topic("T")]), "reads a topic, not .* several topics: app.topic"),
    (lambda app: app.agent(concurrency=0), "concurrency is 0; give the number"),
    (lambda app: app.agent(concurrency="2"), "concurrency is '2'"),  # type: ignore[arg-type]
    (lambda app: app.agent()(lonely), "called with one argument, its stream: too many"),  # type: ignore[arg-type]
    (lambda app: app.agent()(pair), "its stream: missing a required argument: 'table'; write:"),  # type: ignore[arg-type]
    (lambda app: app.agent(group="")(handler), "consumer group name is empty"),
    (lambda app: app.agent(ordered="yes")(handler), "ordered='yes': give True"),  # type: ignore[arg-type]
    (lambda app: app.timer("5 s"), "interval of a timer is '5 s'; give seconds"),  # type: ignore[arg-type]
    (lambda app: app.timer(0), "interval of a timer is 0"),
    (lambda app: app.timer(lonely), "interval of a timer is <function lonely"),  # type: ignore[arg-type]
    (lambda app: app.crontab("every day"), "time of a crontab is 'every day': .* give minute"),
    (lambda app: app.crontab("99 * * * *"), "'99 .*': .*out of range; give minute"),
    (lambda app: app.crontab(lonely), "time of a crontab is <function"),  # type: ignore[arg-type]
    (lambda app: app.Table("t", default=0), "table 't': default=0; give a type or a function"),  # type: ignore[arg-type]
    (lambda app: app.Table("t", defalt=int), r"table 't' has no option defalt=; .*default=\?"),
    (lambda app: app.SetTable("t", ket_type=str), r"no option ket_type=; did you mean key_type=\?"),
    (lambda app: app.GlobalTable("t", zzz=1), "no option zzz=; see docs"),
]


@pytest.mark.parametrize(("declare", "says"), AGENTS)
def test_a_part_that_cannot_be_is_refused_where_it_is_declared(
    declare: Callable[[rr.App], object], says: str
) -> None:
    app = rr.App("x")
    with pytest.raises(StreamError, match=says):
        declare(app)
    assert not app.agents


def test_all_kinds_of_async_functions_are_agents() -> None:
    app = rr.App("x")
    bound = functools.partial(handler)
    kinds: list[Callable[..., Any]] = [handler, answering, bound, Handler()]
    for number, function in enumerate(kinds):
        app.agent(app.topic("T"), name=f"agent{number}")(function)


def test_a_topics_send_names_the_argument_that_was_meant() -> None:
    topic = rr.App("x").topic("T")
    with pytest.raises(ConfigError, match=r"send\(\) has no argument tag=; did you mean tags=\?"):
        asyncio.run(topic.send(value=b"x", tag="pay"))  # type: ignore[call-arg]


def test_ctrl_c_while_an_app_starts_its_node_is_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: Node) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Node, "_start", interrupted)
    with pytest.raises(SystemExit) as end:
        rr.App("x", data=tmp_path).main()
    assert end.value.code == 130
