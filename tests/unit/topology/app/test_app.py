from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest
from faust.types.enums import ProcessingGuarantee
from support.harness.patience import patience, until
from support.nodes.apps import collecting, numbers, put, running
from support.nodes.local_node import LocalNode
from support.predicates import is_even

from rocketray.errors import ConfigError, FilterError, InvalidNameError, SubscriptionConflictError
from rocketray.topology.app.app import App


async def nothing(stream: Any) -> None:
    async for _ in stream:
        pass


@pytest.mark.proves("faust", "`table_standby_replicas`: refused")
@pytest.mark.proves("faust", '`processing_guarantee="exactly_once"`: refused')
@pytest.mark.proves(
    "faust",
    "Settings `agent_supervisor`, `stream_publish_on_commit`, `producer_threaded`: refused",
)
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"processing_guarantee": "exactly_once"}, "at-least-once: make handlers idempotent"),
        ({"processing_guarantee": ProcessingGuarantee.EXACTLY_ONCE}, "Kafka's transactions"),
        ({"value_serializer": "pickle"}, "value_serializer asks for pickle"),
        ({"key_serializer": "pickle"}, "key_serializer asks for pickle"),
        ({"consumer_auto_offset_reset": "none"}, "'earliest' or 'latest'"),
        ({"stream_publish_on_commit": True}, "stream_publish_on_commit is not supported"),
        ({"producer_threaded": True}, "a thread always does the sends"),
        ({"producer_partitioner": lambda *_: 0}, "RocketMQ's hash of a key"),
        ({"table_standby_replicas": 1}, "declare an app.GlobalTable"),
        ({"PartitionAssignor": object}, "coordinator assigns queues"),
        ({"LeaderAssignor": object}, "chooses the leader"),
        ({"agent_supervisor": "mode.supervisors:CrashingSupervisor"}, "supervisor_strategy="),
    ],
)
def test_what_is_not_offered_is_refused_at_configuration(
    options: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        App("app", **options)


def test_settings_from_an_object_are_checked_too() -> None:
    app = App("app")
    app.config_from_object({"processing_guarantee": "exactly_once"})
    with pytest.raises(ConfigError, match=r"exactly_once"):
        app.topic("T")


def test_settings_come_from_the_environment_that_is_given() -> None:
    app = App("shop", env={"BROKER_COMMIT_INTERVAL": "7.5"})
    assert app.conf.broker_commit_interval == 7.5
    elsewhere = App("shop", env={"BROKER_URL": "kafka://other"})
    with pytest.raises(ConfigError, match="runs on a rocketray node"):
        elsewhere.finalize()


def test_an_agents_group_is_the_apps_id_and_its_name() -> None:
    app = App("trade")
    agent = app.agent(app.topic("T"))(nothing)
    assert agent.name == "nothing"
    assert agent.membership is not None
    assert agent.membership.group == "trade-nothing"
    other = app.agent(app.topic("T"), name="other", group="g")(nothing)
    assert other.membership is not None
    assert other.membership.group == "g"


@pytest.mark.proves("faust", "Unknown keywords: refused")
def test_unknown_keywords_of_an_agent_are_errors() -> None:
    app = App("app")
    with pytest.raises(ConfigError, match=r"app.agent has no option tag=; did you mean tags=\?"):
        app.agent(app.topic("T"), tag="pay")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"zzz=; its options are channel, tags, sql, .* schema$"):
        app.agent(app.topic("T"), zzz=1)  # type: ignore[arg-type]


def test_unknown_keywords_of_a_topic_are_errors() -> None:
    app = App("app")
    with pytest.raises(ConfigError, match=r"app.topic has no option key=; did you mean keys=\?"):
        app.topic("T", key=["a"])  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="its options are queues, tag, keys, properties, ") as no:
        app.topic("T", zzz=1)  # type: ignore[call-arg]
    assert "self" not in str(no.value)


def test_two_agents_of_one_name_are_refused() -> None:
    app = App("app")
    app.agent(app.topic("T"))(nothing)
    with pytest.raises(ConfigError, match=r"has an agent 'nothing' already"):
        app.agent(app.topic("U"))(nothing)


def test_agents_of_one_group_subscribe_alike() -> None:
    app = App("app")
    topic = app.topic("T")
    app.agent(topic, name="one", group="g", tags="pay")(nothing)
    app.agent(topic, name="two", group="g", tags="pay")(nothing)
    with pytest.raises(SubscriptionConflictError, match=r"'g'.*'T'.*pay.*order"):
        app.agent(topic, name="three", group="g", tags="order")(nothing)
    assert "three" not in app.agents


@pytest.mark.parametrize("group", ["a b", "x" * 121])
def test_group_names_are_checked(group: str) -> None:
    app = App("app")
    with pytest.raises(InvalidNameError):
        app.agent(app.topic("T"), group=group)(nothing)


def test_sinks_are_registered() -> None:
    app = App("app")
    topic = app.topic("T")

    @app.sink(topic, tags="pay", checkpoint="checkpoints/pay", trigger="5 seconds")
    def pay_lake(df: Any) -> Any:
        return df

    assert app.sinks == {"pay_lake": pay_lake}
    assert pay_lake.topic == "T"
    with pytest.raises(ConfigError, match=r"no option tag=; did you mean tags=\?"):
        app.sink(topic, tag="pay")  # type: ignore[call-arg]


def test_importing_an_app_imports_neither_ray_nor_pyspark() -> None:
    code = (
        "import sys; from rocketray.topology.app.app import App; App('a').topic('T');"
        "bad = {'ray', 'pyspark'} & set(sys.modules); assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=patience(60))


@pytest.mark.proves("faust", "`@app.timer`, `@app.task`: works")
def test_timers_and_tasks_run_once_agents_are_members(node: LocalNode) -> None:
    async def scenario() -> None:
        app = App("app", connection=node)
        topic = app.topic("T", value_type=bytes, queues=1)
        seen: list[bytes] = []
        ticks: list[int] = []
        tasks: list[int] = []

        app.agent(topic, name="reader")(collecting(seen))

        @app.timer(interval=timedelta(milliseconds=20))
        async def tick() -> None:
            ticks.append(len(ticks))

        @app.task
        async def send_first(app: App) -> None:
            tasks.append(len(app.consumer.assignment()))
            await topic.send(value=b"from a task")

        async with running(app):
            await until(lambda: len(ticks) >= 3 and seen)
        assert seen == [b"from a task"]
        assert tasks == [1]

    asyncio.run(scenario())


def test_an_app_that_cannot_join_says_so_and_is_crashed(node: LocalNode) -> None:
    async def scenario() -> None:
        first = App("first", connection=node)
        first.agent(first.topic("T"), group="g", tags="pay")(nothing)
        second = App("second", connection=node)
        second.agent(second.topic("T"), group="g", tags="order")(nothing)
        async with running(first):
            await second.start()
            await until(lambda: second.crashed)
            assert isinstance(second.crash_reason, SubscriptionConflictError)
            await second.stop()

    asyncio.run(scenario())


def test_a_task_that_raises_crashes_the_app(node: LocalNode) -> None:
    async def scenario() -> None:
        app = App("app", connection=node)

        @app.task
        async def fail() -> None:
            raise ValueError("on purpose")

        async with running(app):
            await until(lambda: app.crashed)

    asyncio.run(scenario())


def test_a_new_group_may_start_at_the_end(node: LocalNode) -> None:
    async def scenario() -> None:
        app = App("app", connection=node, consumer_auto_offset_reset="latest")
        topic = app.topic("T", value_type=bytes)
        seen: list[bytes] = []
        app.agent(topic, name="reader")(collecting(seen))
        async with running(app):
            await topic.send(value=b"new")
            await until(lambda: seen)
        assert seen == [b"new"]

    node.topics.ensure("T", 1)
    put(node, "T", numbers(10))
    asyncio.run(scenario())


def test_a_class_filter_that_fails_crashes_the_app_and_tells_on_which_message(
    node: LocalNode,
) -> None:
    async def scenario() -> None:
        app = App("app", connection=node)
        app.agent(app.topic("T"), where="support.predicates:fails_always")(nothing)
        async with running(app):
            await until(lambda: app.crashed)
        assert isinstance(app.crash_reason, FilterError)
        assert "broken on purpose" in str(app.crash_reason)

    node.topics.ensure("T", 1)
    put(node, "T", numbers(1))
    asyncio.run(scenario())


def test_a_group_may_go_on_without_what_its_predicate_fails_on(node: LocalNode) -> None:
    seen: list[bytes] = []

    async def scenario() -> None:
        app = App("app", connection=node)
        topic = app.topic("T", value_serializer="raw")
        app.agent(topic, where=is_even, on_filter_error="skip")(collecting(seen))
        assert app.predicates == ("support.predicates:is_even",)
        async with running(app):
            await until(lambda: len(seen) == 2)

    node.topics.ensure("T", 1)
    put(node, "T", [b"0", b"no number", b"1", b"2"])
    asyncio.run(scenario())
    assert seen == [b"0", b"2"]
    counters = node.state.registry.memberships.counters("app-handler", "T")
    assert (counters.predicate_errors, counters.class_rejected, counters.delivered) == (1, 1, 2)


def test_questions_and_answers(node: LocalNode) -> None:
    async def scenario() -> None:
        app = App("app", connection=node)

        @app.agent(value_type=int)
        async def double(stream: Any) -> Any:
            async for value in stream:
                yield value * 2

        async with running(app):
            assert await double.ask(21) == 42
            assert await double.join([1, 2, 3]) == [2, 4, 6]

    asyncio.run(scenario())


def test_an_anonymous_agent_has_a_topic_of_its_own(node: LocalNode) -> None:
    async def scenario() -> None:
        app = App("app", connection=node)
        seen: list[int] = []

        reader = app.agent(value_type=int, name="reader")(collecting(seen))

        async with running(app):
            await reader.send(value=1)
            await reader.cast(2)
            await until(lambda: seen == [1, 2])
        assert node.topics.get("app-reader").queues == 4

    asyncio.run(scenario())


def test_topics_that_may_not_be_declared_must_exist(node: LocalNode) -> None:
    async def scenario() -> None:
        app = App("app", connection=node, topic_allow_declare=False)
        app.agent(app.topic("Missing"))(nothing)
        await app.start()
        await until(lambda: app.crashed)
        await app.stop()
        assert "Missing" in str(app.crash_reason)

    asyncio.run(scenario())
