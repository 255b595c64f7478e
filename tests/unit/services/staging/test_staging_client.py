"""Clients of staged batches over Arrow Flight: fragments in the directory, or sent to the service."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.nodes.staging import bodies_of, rows_of
from support.nodes.staging_server import SteppedStaging, served
from support.nodes.watched_proxy import unused_proxy

from rocketray.broker.fetching.read_plan import DiskPlace
from rocketray.errors import (
    ConfigError,
    CorruptRecordError,
    ShardUnavailableError,
    StoreError,
    StreamError,
    TopicNotFoundError,
)
from rocketray.runtime.files.fragment_file import BatchName, Fragment
from rocketray.runtime.files.paths import staged_directory
from rocketray.services.staging import staging_calls as staging_calls_module
from rocketray.services.staging.fragment_upload import FragmentUpload
from rocketray.services.staging.message_rows import MessageRows
from rocketray.services.staging.staging_api import StagedBatch
from rocketray.services.staging.staging_calls import staging_calls
from rocketray.services.staging.staging_client import StagingClient
from rocketray.testing import Broker

NAME = BatchName("job", 0)


@pytest.fixture(params=[False, True], ids=["plain", "TLS"])
def service(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[Broker, SteppedStaging, DiskPlace]]:
    with Broker(tmp_path / "data") as broker:
        broker.topics.create("Out", queues=2)
        with served(broker, has_tls=request.param) as (staging, place):
            yield broker, staging, place


def elsewhere(place: DiskPlace) -> DiskPlace:
    """Return the place of a disk that is not on this machine."""
    return replace(place, uuid="00000000-0000-4000-8000-000000000000")


def write(client: StagingClient, *bodies: str) -> Fragment:
    fragment = client.new_fragment(NAME)
    rows = MessageRows(client.queues_of, "Out", clock_ms=lambda: 1_700_000_000_000)
    for body in bodies:
        for frame in rows.frames(rows_of([body])):
            fragment.add(frame.topic, frame.queue_id, frame.content, frame.messages)
    return fragment.finish()


@pytest.mark.proves("spark", "A task elsewhere uploads its fragment, with a token and TLS")
@pytest.mark.parametrize("is_here", [True, False])
def test_a_batch_is_staged_and_decided_here_and_elsewhere(
    service: tuple[Broker, SteppedStaging, DiskPlace], *, is_here: bool
) -> None:
    broker, _, place = service
    client = StagingClient(place if is_here else elsewhere(place))
    large = "x" * 3_000_000
    fragment = write(client, "a", large, "b")
    assert (staged_directory(broker.data) / fragment.name).stat().st_size == fragment.size
    batch = StagedBatch(NAME, "run", (fragment,))
    assert [client.calls.decide(batch) for _ in range(2)] == ["decided", "repeated"]
    assert client.wait_applied(NAME, 10)
    assert bodies_of(broker) == {"a": 1, large: 1, "b": 1}
    shown = client.calls.overview(5)
    assert shown == broker.node.staging.overview(5)
    assert shown.counts.messages == 3


def test_nothing_is_staged_through_the_proxy_of_the_environment(
    service: tuple[Broker, SteppedStaging, DiskPlace], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, _, place = service
    with unused_proxy(monkeypatch):
        client = StagingClient(elsewhere(place))
        batch = StagedBatch(NAME, "run", (write(client, "a"),))
        assert client.calls.decide(batch) == "decided"
    assert client.wait_applied(NAME, 10)
    assert bodies_of(broker) == {"a": 1}


def test_messages_are_published_and_fragments_dropped(
    service: tuple[Broker, SteppedStaging, DiskPlace],
) -> None:
    broker, _, place = service
    client = StagingClient(place)
    client.calls.publish(NAME, [write(client, "a")])
    assert client.wait_applied(NAME, 10)
    dropped = write(client, "b")
    assert [work.fragments for work in client.calls.overview(5).work] == [1]
    client.calls.drop(NAME, [dropped.name])
    assert not client.calls.overview(5).work
    assert bodies_of(broker) == {"a": 1}


def test_errors_of_the_service_are_those_of_its_caller(
    service: tuple[Broker, SteppedStaging, DiskPlace],
) -> None:
    _, staging, place = service
    client = StagingClient(elsewhere(place))
    with pytest.raises(TopicNotFoundError, match="'Nope' does not exist"):
        client.queues_of("Nope")
    with pytest.raises(StoreError, match="is not decided"):
        client.calls.is_applied(NAME)
    staging.failing = 1
    with pytest.raises(StreamError, match="as the test asked"):
        client.calls.decide(StagedBatch(NAME, "run", ()))


def test_an_upload_that_is_not_a_whole_fragment_leaves_nothing(
    service: tuple[Broker, SteppedStaging, DiskPlace],
) -> None:
    broker, _, place = service
    assert place.service is not None
    name = "job.0." + "0" * 32 + ".half"
    upload = FragmentUpload(place.service, name)
    upload.write(b"some of it" * 10)
    with pytest.raises(CorruptRecordError):
        upload.finish()
    assert not [*staged_directory(broker.data).iterdir()]
    broken = FragmentUpload(place.service, name)
    broken.write(b"x" * 2_000_000)
    broken.discard()


def test_a_request_has_a_limit_and_says_what_to_do(
    service: tuple[Broker, SteppedStaging, DiskPlace], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, staging, place = service
    monkeypatch.setattr(staging_calls_module, "_REQUEST_MAX_BYTES", 1000)
    decide = staging_calls(broker.data, staging, broker.topics).find("StagingApi.decide")
    assert decide is not None
    with pytest.raises(ConfigError, match="the limit is 1000; write with fewer tasks"):
        decide(b" " * 1001)
    with pytest.raises(ConfigError, match="1001 is no number from 0 to 1000"):
        StagingClient(place).calls.overview(1001)


def test_a_service_that_is_gone_is_named(
    service: tuple[Broker, SteppedStaging, DiskPlace],
) -> None:
    _, _, place = service
    assert place.service is not None
    gone = replace(place, service=replace(place.service, port=1))
    with pytest.raises(ShardUnavailableError, match="port 1 is unavailable: it does not answer"):
        StagingClient(gone).calls.overview(1)
    assert gone.service is not None
    with pytest.raises(
        ShardUnavailableError, match="port 1 is unavailable: it broke an upload off"
    ):
        FragmentUpload(gone.service, "job.0." + "0" * 32 + ".half")
