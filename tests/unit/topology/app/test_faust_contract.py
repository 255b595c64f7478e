"""Names that Faust keeps private and the topology uses: this fails when a new Faust moves them.

faust-streaming is pinned to 0.15.x for this reason. Each test says what is built on the name.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import faust
import pytest
from faust import streams
from faust.agents import agent as agents
from faust.agents.actor import Actor
from faust.agents.replies import BarrierState, ReplyConsumer
from faust.app.base import App as FaustApp
from faust.assignor.partition_assignor import PartitionAssignor
from faust.events import Event
from faust.models.fields import FieldDescriptor
from faust.serializers.registry import Registry
from faust.stores.rocksdb import Store as RocksStore
from faust.tables.base import Collection
from faust.tables.manager import TableManager
from faust.tables.recovery import Recovery
from faust.tables.sets import ChangeloggedSetManager, SetTableManager
from faust.tables.table import Table
from faust.tables.wrappers import WindowWrapper
from faust.transport.base import Transport
from faust.transport.conductor import Conductor
from faust.transport.consumer import Consumer
from faust.transport.producer import Producer
from mode import Service
from mode.utils.locks import Event as LoopEvent
from mode.utils.queues import FlowControlEvent, ThrowableQueue

from rocketray.topology.app.app import App
from rocketray.topology.app.option_types import DeclaredTopicOptions, SinkOptions
from rocketray.topology.app.settings import arguments_of
from rocketray.topology.app.sink_spec import SinkSpec
from rocketray.topology.values.topic import is_announced


class Model(faust.Record):  # type: ignore[misc]  # Faust's types are not followed
    x: int


def source(function: Any) -> str:
    return inspect.getsource(function)


@pytest.mark.parametrize(
    ("owner", "names"),
    [
        (FaustApp, "_configure _create_directories _new_transport _new_producer_transport"),
        (FaustApp, "_fetcher _on_agent_error on_started crash_reason tables flow_control"),
        (streams.Stream, "_passive_drainer _format_key _enable_passive get_active_stream"),
        (streams.Stream, "_iter_ll_forwards _channel_stop_iteration _track get_root_stream"),
        (agents.Agent, "_execute_actor _slurp _prepare_channel actor_from_stream"),
        (Conductor, "_flag_changes _resubscribe_sleep_lock_seconds add"),
        (Consumer, "_commit _getmany _seek _to_message _new_topicpartition force_commit"),
        (Consumer, "wait_empty perform_seek on_partitions_assigned on_task_error"),
        (Consumer, "_clean_unacked_messages _is_changelog_tp commit_and_end_transactions"),
        (Consumer, "stop_flow pause_partitions on_partitions_revoked _drain_messages"),
        (PartitionAssignor, "_global_table_standby_assignments _compress _url on_assignment"),
        (Conductor, "_build_handler on_client_only_start"),
        (Producer, "send send_and_wait flush create_topic supports_headers"),
        (TableManager, "_update_channels recovery on_start _recovery changelog_topics"),
        (Recovery, "_restart_recovery _slurp_changelogs _resume_streams signal_recovery_start"),
        (Collection, "_maybe_set_key_ttl _maybe_del_key_ttl _del_old_keys _should_expire_keys"),
        (Collection, "_new_changelog_topic"),
        (WindowWrapper, "_items_delta get_timestamp _keys ValueType"),
        (Table, "WindowWrapper _get_key"),
        (Registry, "_prepare_payload"),
        (faust.Record, "_contribute_field_descriptors"),
        (FieldDescriptor, "to_python _parents_path getattr"),
        (Collection, "_new_store_by_url _new_store _to_key _verify_source_topic_partitions"),
        (RocksStore, "partition_path persisted_offset set_persisted_offset assign_partitions"),
        (SetTableManager, "_enable _modify_set"),
        (ChangeloggedSetManager, "send_changelog_event apply_changelog_batch"),
        (agents.Agent, "_barrier_send _get_strtopic ask_nowait"),
        (ReplyConsumer, "_start_fetcher _drain_replies _reply_topic add"),
        (Transport, "Consumer Producer Conductor Fetcher"),
        (Service, "maybe_start service_reset wait_until_stopped wait_for_stopped add_future"),
        (ThrowableQueue, "force_put_nowait _throw get empty"),
    ],
)
def test_names_exist(owner: Any, names: str) -> None:
    for name in names.split():
        if name != "_track":  # ours, kept apart from Faust's: must stay free
            assert hasattr(owner, name), name
        else:
            assert not hasattr(owner, name), name


def test_instances_have_what_streams_use() -> None:
    async def made() -> Any:
        return faust.App("a").stream(
            []
        )  # it asks for the loop, which Python no longer makes for it

    stream = asyncio.run(made())
    for name in (
        "_processors",
        "_active_agens",
        "_finalized",
        "enable_acks",
        "_next",
        "_passive_started",
    ):
        assert hasattr(stream, name), name


def test_an_event_takes_its_loop_when_it_is_waited_for() -> None:
    assert vars(LoopEvent())["_loop"] is None


def test_current_event_calls_what_the_variable_holds() -> None:
    """Streams put a bound method there, where Faust puts a weak reference."""
    event = object()
    token = streams._current_event.set(lambda: event)
    try:
        assert faust.current_event() is event
    finally:
        streams._current_event.reset(token)


def test_handlers_are_awaited_by_execute_actor_and_stopped_through_their_channel() -> None:
    assert list(inspect.signature(agents.Agent._execute_actor).parameters) == [
        "self", "coro", "aref",
    ]  # fmt: skip
    assert "_throw(StopAsyncIteration())" in source(Actor.cancel)
    assert "self.it.__await__" in source(agents.AwaitableActor.__await__)


def test_events_are_read_from_the_stream_and_the_current_event() -> None:
    assert "async for _ in self" in source(streams.Stream.events)
    assert "self.current_event" in source(streams.Stream.events)
    assert "stream.current_event" in source(agents.Agent._slurp)


def test_the_fetcher_starts_when_messages_may_flow_and_stops_before_streams_do() -> None:
    """Feeds are opened and drained there."""
    assert "_fetcher.maybe_start()" in source(Recovery._resume_streams)
    assert "_fetcher.stop()" in source(FaustApp._stop_fetcher)
    assert "_stop_fetcher()" in source(FaustApp._stop_consumer)
    assert "_fetcher.stop()" in source(TableManager.on_stop)


def test_tables_and_replies_have_what_ours_use() -> None:
    app = faust.App("a")
    table = app.Table("t")
    names = "_partition_timestamps _partition_timestamp_keys _partition_latest_timestamp"
    assert all(hasattr(table, name) for name in names.split())
    assert app.assignor._assignment.actives == {}
    assert hasattr(app.serializers, "_prepare_payload")


def test_the_consumer_of_answers_has_what_ours_uses() -> None:
    async def look() -> None:  # it is bound to the loop that runs
        assert BarrierState("r")._results.maxsize == 1000
        consumer = faust.App("a")._reply_consumer
        assert (consumer._waiting, consumer._fetchers) == ({}, {})

    asyncio.run(look())


def test_commits_run_through_force_commit() -> None:
    assert "self.force_commit(" in source(Consumer.commit)
    assert "await self.commit()" in source(Consumer._commit_handler.fun)


def test_flow_control_empties_only_the_queues_that_ask_for_it() -> None:
    """The queue of our topics does not, because the ledger counts on its deliveries."""
    flow = FlowControlEvent()
    kept, emptied = (
        ThrowableQueue(maxsize=0, flow_control=flow, clear_on_resume=clear)
        for clear in (False, True)
    )
    for queue in (kept, emptied):
        queue.force_put_nowait(1)
    flow.resume()
    assert (kept.qsize(), emptied.qsize()) == (1, 0)


def test_models_tell_their_fields_and_codec() -> None:
    assert list(Model._options.fields) == ["x"]
    assert hasattr(Model._options, "serializer")
    assert Model.from_data({"x": 1}, preferred_type=Model) == Model(x=1)
    assert faust.App("a").serializers.Model._maybe_reconstruct([1]) == [1]


def test_a_signal_tells_its_receivers() -> None:
    """Without one it is not sent, which would cost as much as all checks of a send."""
    app, other = faust.App("a"), faust.App("b")
    signal, of_all = app.on_produce_message, faust.App.on_produce_message

    def receivers() -> list[Any]:
        found = [*signal.iter_receivers(app)]
        assert is_announced(app) is bool(found)
        return found

    def receive(*_: Any, **__: Any) -> None: ...

    before = receivers()
    signal.connect(receive)
    assert receive in receivers()
    assert is_announced(other) is bool([*other.on_produce_message.iter_receivers(other)])
    signal.disconnect(receive)
    assert receivers() == before
    of_all.connect(receive)
    assert receive in receivers()
    of_all.disconnect(receive)
    assert receivers() == before


def test_event_and_message_take_what_deliveries_give_them() -> None:
    assert list(inspect.signature(Event.__init__).parameters) == [
        "self", "app", "key", "value", "headers", "message",
    ]  # fmt: skip
    from faust.types.tuples import Message  # noqa: PLC0415

    parameters = inspect.signature(Message.__init__).parameters
    assert {"tp", "generation_id", "checksum"} <= set(parameters)


def test_settings_that_we_set_exist() -> None:
    conf = faust.App("a").conf
    for name in (
        "Stream", "Agent", "Topic", "TableManager", "broker_commit_interval", "topic_partitions",
        "topic_disable_leader", "web_enabled", "stream_wait_empty", "topic_allow_declare",
    ):  # fmt: skip
        assert hasattr(conf, name), name


def test_a_stock_consumer_is_driven_as_faust_drives_its_own() -> None:
    """It waits for events that are not acknowledged, and commits before queues are given back."""
    assert "self._unacked_messages.add(message)" in source(Consumer.track_message)
    assert "self._acked.pop(tp, None)" in source(Consumer.on_partitions_revoked)
    assert "consumer.wait_empty()" in source(FaustApp._consumer_wait_empty)
    assert "consumer.perform_seek()" in source(Recovery._resume_streams)
    assert "await self.seek_to_committed()" in source(Consumer.perform_seek)


def test_the_typed_options_of_topics_and_sinks_are_those_that_there_are() -> None:
    of_faust = set(arguments_of(faust.App.topic)) - set(arguments_of(App.topic))
    assert set(DeclaredTopicOptions.__annotations__) == of_faust
    fields = set(SinkSpec.__dataclass_fields__) - {"name", "function", "topic", "owner"}
    assert set(SinkOptions.__annotations__) == fields
