"""The shards of a node, in processes of their own: starting, asking, stopping and removing them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from rocketray.actors.client.actor_names import actor_or_none, find_actor
from rocketray.actors.client.ray_transport import begin
from rocketray.broker.filtering.bitmap_orders import Answer, BitmapOrder
from rocketray.broker.shards.owned_shard import why_closed
from rocketray.broker.shards.shard_api import ExpiryOrder, ScrubState, ShardApi, shard_of, shards_of
from rocketray.broker.shards.shard_problems import subjects_of
from rocketray.broker.shards.shard_process import Opened
from rocketray.broker.topics.catalog import TopicCatalog, TopicConfig
from rocketray.broker.topics.process_names import is_shared
from rocketray.broker.topics.topic_start import Started
from rocketray.errors import ActorError, ShardUnavailableError, StreamError
from rocketray.runtime.calls.endpoint import disk_in, process_actor
from rocketray.runtime.files.home import Home
from rocketray.runtime.ray_process.ray_runtime import (
    GetTimeoutError,
    RayActorError,
    RayError,
    RayTaskError,
    raised_there,
    ray,
)

from .coordinator_settings import CoordinatorSettings
from .node_disks import NodeDisks
from .one_node import start_actor
from .shard_process_actor import ShardProcessActor

_LOG = logging.getLogger(__name__)
_PROCESS_THREADS = 16  # a lookup that reads much does not hold up a producer's attach
_ANSWER_S = 2.0  # as often as problems are asked for: a silent process is asked again then
_BITMAPS_TIMEOUT_S = 10.0
_STOP_S = 60.0  # a stop stores what is in the rings, and syncs all queues of a process
# At a start, joined disks are waited for no longer: their shards open beside the coordinator.
_JOINED_S = 10.0
CatalogNow = Callable[[], TopicCatalog]
_Queues = list[tuple[TopicConfig, list[int]]]


class NodeShards:
    """The shards of all topics of a node: its :class:`TopicShards`."""

    def __init__(
        self,
        home: Home,
        settings: CoordinatorSettings,
        disks: NodeDisks,
        catalog: CatalogNow,
    ) -> None:
        """Take the *home* of the first disk, and the cluster's settings for shards."""
        self._home = home
        self._disks = disks
        self._catalog = catalog
        self._settings = dict(settings.shard_sizes), settings.scrub_rate

    def start(
        self, topics: list[TopicConfig], queues: range | None = None, wait_s: float | None = None
    ) -> Started:
        """See :class:`TopicShards`; a closed shard does not keep the others from running.

        Without *wait_s* it waits until all on the coordinator's own disk answer.
        """
        wanted = _by_process(topics, queues)
        asked: dict[Any, list[str]] = {}
        began, waiting = [], []
        closed: dict[str, StreamError] = {}
        unavailable = self._prepare({disk for disk, _ in wanted})
        own: list[Any] = []
        for (disk, process), of_process in wanted.items():
            places = _places(of_process)
            if disk in unavailable:
                closed |= dict.fromkeys(places, unavailable[disk])
                continue
            name = process_actor(process)
            actor = actor_or_none(self._home.cluster, name)
            if actor is None:
                began += places
                arguments = self._disks.register.homes[disk], process, *self._settings
                actor = start_actor(ShardProcessActor, name, _PROCESS_THREADS, *arguments)
            answer = actor.open.remote(of_process)  # all processes open theirs at the same time
            asked[answer] = places
            if not disk:
                own.append(answer)
        late: set[Any] = set()
        if own and wait_s is None:
            ray.wait(own, num_returns=len(own), timeout=None)
        if asked:
            timeout_s = _JOINED_S if wait_s is None else wait_s
            late = set(ray.wait([*asked], num_returns=len(asked), timeout=timeout_s)[1])
        for answer, places in asked.items():
            if answer in late:
                waiting += places
                continue
            opened = _opened(answer, places)
            began += opened.new
            closed |= opened.closed
        return Started(closed, tuple(waiting), tuple(dict.fromkeys(began)))

    def _prepare(self, disks: Iterable[str]) -> dict[str, StreamError]:
        """Have each disk keep the catalog that its shards read; return why some cannot."""
        why: dict[str, StreamError] = {}
        for disk in disks:
            try:
                self._disks.check(disk)
                self._disks.keep_catalog(disk, self._catalog)
            except StreamError as error:
                why[disk] = error
        return why

    def problems(
        self, topics: Iterable[TopicConfig], noted: Collection[str]
    ) -> dict[str, str | None]:
        """See :class:`TopicShards`; a process that does not answer in time is left out."""
        found: dict[str, str | None] = {}
        for places, lines in self._ask(topics, lambda actor: actor.problems.remote()):
            if lines is not None:
                if noted:  # else all these names, of thousands of queues, are made for nothing
                    known = {subject for place in places() for subject in subjects_of(place)}
                    known |= {each for each in noted if each.startswith("process ")}
                    found = {**dict.fromkeys(known.intersection(noted)), **found}
                found |= lines
        return found

    def unflushed(self, topics: Iterable[TopicConfig]) -> dict[str, int | None]:
        return self._ask_open(topics, lambda actor: actor.unflushed.remote())

    def scrubs(self, topics: Iterable[TopicConfig]) -> dict[str, ScrubState | None]:
        return self._ask_open(topics, lambda actor: actor.scrubs.remote())

    def _ask_open(
        self, topics: Iterable[TopicConfig], ask: Callable[[Any], Any]
    ) -> dict[str, Any | None]:
        """Return what is answered of each open shard; None if its process does not answer."""
        found: dict[str, Any | None] = {}
        for places, answer in self._ask(topics, ask):
            names = places()
            known = dict.fromkeys(names) if answer is None else answer
            found |= {place: known[place] for place in names if place in known}
        return found

    def _ask(
        self, topics: Iterable[TopicConfig], ask: Callable[[Any], Any]
    ) -> Iterator[tuple[Callable[[], list[str]], Any]]:
        """Yield the places of each process of *topics*, and its answer; None if it has none."""
        wanted = {process_actor(name): each for (_, name), each in _by_process(topics).items()}
        actors = {name: actor_or_none(self._home.cluster, name) for name in sorted(wanted)}
        asked = {ask(actor): name for name, actor in actors.items() if actor is not None}
        answered: dict[str, Any] = {}
        if asked:
            answers = ray.wait([*asked], num_returns=len(asked), timeout=_ANSWER_S)[0]
            for answer in answers:
                with suppress(RayError):
                    answered[asked[answer]] = ray.get(answer)
        for name, of_process in wanted.items():
            yield partial(_places, of_process), answered.get(name)

    def stop(self, topics: Iterable[TopicConfig]) -> None:
        """Stop the processes of all *topics* on the coordinator's disk: all is saved on return.

        A queue that was never started, because the creation of its topic was interrupted, has no
        data.
        """
        names = {
            process_actor(process)
            for topic in topics
            for process in topic.by_process(topic.by_disk().get("", ()))
        }
        actors = [actor_or_none(self._home.cluster, name) for name in sorted(names)]
        ray.get([actor.stop.remote() for actor in actors if actor is not None])

    def remove(self, topic: TopicConfig) -> None:
        """Stop the shards of a topic that is deleted from the catalog, for good.

        A process with this topic alone ends. One that died a moment ago starts again without its
        topic.
        """
        try:
            for process in topic.by_process():
                self._remove(topic, process)
        except RayError as error:
            reason = error
            if isinstance(error, RayTaskError):
                reason = raised_there(error, Path(self._home.data))
            if isinstance(reason, RayError):
                said = f"shards of topic {topic.name} are not stopped: {reason}"
                raise ActorError(said) from error
            raise reason from None

    def _remove(self, topic: TopicConfig, process: str) -> None:
        try:
            actor = find_actor(self._home.cluster, process_actor(process))
        except ShardUnavailableError:
            return  # no process, no shard
        if is_shared(process):
            ray.get(actor.remove.remote(topic.name), timeout=_STOP_S)
            return
        try:
            ray.get(actor.stop.remote(), timeout=_STOP_S)
        except RayError as error:
            _LOG.warning("process %s did not stop, so it is killed: %s", process, error)
        ray.kill(actor)

    def start_process(self, topic: TopicConfig, queue_id: int) -> None:
        """See ``MovingShards``.

        Raises:
            ShardUnavailableError: it does not start.
        """
        disk, process = topic.disk_of(queue_id), topic.process_of(queue_id)
        home = self._disks.check(disk)
        arguments = home, process, *self._settings
        actor = start_actor(ShardProcessActor, process_actor(process), _PROCESS_THREADS, *arguments)
        _answer(actor.closed.remote(), process, _STOP_S)

    def hand_over(self, topic: TopicConfig, queue_id: int) -> None:
        """See ``MovingShards``.

        Raises:
            ShardUnavailableError: the process does not answer. StoreError, OSError: the shard
                cannot be closed cleanly.
        """
        process = topic.process_of(queue_id)
        actor = find_actor(self._home.cluster, process_actor(process))
        _answer(actor.hand_over.remote(topic.name, queue_id), process, _STOP_S)

    def take_back(self, topic: TopicConfig, queue_id: int) -> None:
        process = topic.process_of(queue_id)
        actor = find_actor(self._home.cluster, process_actor(process))
        _answer(actor.take_back.remote(topic, queue_id), process, _STOP_S)

    def end_unused(self, before: TopicConfig, after: TopicConfig) -> None:
        """See ``MovingShards``; a process that does not stop is left to the operator."""
        for process in before.by_process().keys() - after.by_process().keys():
            if not is_shared(process):
                try:
                    self._remove(before, process)
                except (RayError, StreamError) as error:
                    _LOG.warning("process %s, without queues, does not stop: %s", process, error)

    def set_writable(self, topic: TopicConfig) -> None:
        """See :class:`TopicShards`.

        A shard that does not answer now reads the permission from the catalog when it is opened.
        """
        unavailable = self._prepare(topic.by_disk())
        calls = [
            begin(
                self._home.cluster, shard_of(topic, queue_id), ShardApi.set_writable, topic.writable
            )
            for queue_id in range(topic.queues)
            if topic.disk_of(queue_id) not in unavailable
        ]
        if calls:  # an error of those that answer in time is raised
            ray.get(ray.wait(calls, num_returns=len(calls), timeout=_STOP_S)[0])

    def expire(self, orders: Iterable[ExpiryOrder], timeout_s: float) -> None:
        """Have shards remove old files; one that cannot, or is unavailable, does so later."""
        of_process: dict[str, list[ExpiryOrder]] = {}
        for order in orders:
            of_process.setdefault(order.topic.process_of(order.queue_id), []).append(order)
        asked: dict[str, Any] = {}
        for process, wanted in of_process.items():
            try:
                self._disks.check(disk_in(process))
                actor = find_actor(self._home.cluster, process_actor(process))
                asked[process] = actor.expire.remote(wanted)
            except ShardUnavailableError:
                _LOG.warning("%s is unavailable; its old files are removed later", process)
        for process, answer in asked.items():
            try:
                failed = ray.get(answer, timeout=timeout_s)
            except (RayActorError, RayTaskError, GetTimeoutError) as error:
                _LOG.warning("%s did not remove its old files: %s", process, error)
            else:
                for place, reason in failed.items():
                    _LOG.warning("%s did not remove its old files: %s", place, reason)

    def remove_files(self, topic: TopicConfig) -> None:
        self._disks.remove_files(topic)

    def keep_bitmaps(self, orders: Sequence[BitmapOrder]) -> list[list[Answer] | None]:
        """See :class:`TopicShards`.

        A shard that is unavailable is told the next time, and delays the others by a bounded time.
        """
        asked = [self._ask_to_keep(order) for order in orders]
        calls = [call for of_topic in asked for call in of_topic]
        if calls:
            ray.wait(calls, num_returns=len(calls), timeout=_BITMAPS_TIMEOUT_S)
        return [
            _answers(order, of_topic) if of_topic else None
            for order, of_topic in zip(orders, asked, strict=True)
        ]

    def _ask_to_keep(self, order: BitmapOrder) -> list[Any]:
        """Return the calls that tell a topic's shards; none if one of them is unavailable."""
        try:
            for disk in order.topic.by_disk():
                self._disks.check(disk)
            return [
                begin(self._home.cluster, shard, ShardApi.keep_bitmaps, order.living)
                for shard in shards_of(order.topic)
            ]
        except ShardUnavailableError as error:
            _LOG.debug("topic %s: bitmaps are set later: %s", order.topic.name, error)
            return []


def _answer(call: Any, process: str, timeout_s: float) -> Any:
    """Return the result of a call to a shard process, or raise its error as one of ours."""
    try:
        return ray.get(call, timeout=timeout_s)
    except RayTaskError as error:
        cause = error.cause
        raise (cause if isinstance(cause, StreamError | OSError) else error) from None
    except RayError as error:
        raise ShardUnavailableError(f"shard process {process}", str(error)) from error


def _places(of_process: _Queues) -> list[str]:
    return [f"{topic.name}/{each}" for topic, queue_ids in of_process for each in queue_ids]


def _by_process(
    topics: Iterable[TopicConfig], queues: range | None = None
) -> dict[tuple[str, str], _Queues]:
    """Return the queues of *topics*, or those of *queues*, by their disks and processes."""
    wanted: dict[tuple[str, str], _Queues] = {}
    for topic in topics:
        for process, queue_ids in topic.by_process(queues).items():
            disk = topic.disk_of(queue_ids[0])
            wanted.setdefault((disk, process), []).append((topic, queue_ids))
    return wanted


def _opened(answer: Any, places: list[str]) -> Opened:
    """Return which of *places* a process has opened, and why some of them stay closed."""
    try:
        opened: Opened = ray.get(answer)
    except RayError as error:
        cause = error.cause if isinstance(error, RayTaskError) else None
        if isinstance(cause, StreamError):
            return Opened((), dict.fromkeys(places, cause))
        _LOG.warning("shards %s stay closed", ", ".join(places), exc_info=error)
        advice = "see the node's logs, and start the node again"
        if cause is None:  # Ray's text about an ended actor has many lines
            cause = ActorError(next(iter(str(error).splitlines()), type(error).__name__))
        reasons = {place: ActorError(why_closed(place, cause, advice)) for place in places}
        return Opened((), reasons)
    return opened


def _answers(order: BitmapOrder, calls: list[Any]) -> list[Answer] | None:
    try:
        answers: list[Answer] = ray.get(calls, timeout=0)
    except (RayActorError, RayTaskError, GetTimeoutError) as error:
        _LOG.warning("topic %s: bitmaps are set later: %s", order.topic.name, error)
        return None
    return answers
