from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rocketray.base.cluster import Cluster
from rocketray.broker.fetching.read_plan import DiskPlace, FetchService
from rocketray.errors import ShardUnavailableError
from rocketray.queries.spark import staging_place
from rocketray.queries.spark.staging_place import find_staging

pytestmark = pytest.mark.proves(
    "spark",
    "The service of a write is looked up again only when it does not answer",
)


class Services:
    """The fetch services of clusters: each look over Ray gives another port."""

    def __init__(self) -> None:
        self.looks: list[str] = []
        self.answering: set[int] = set()

    def connect(self, node: Cluster) -> Any:
        self.looks.append(node.name)
        port = len(self.looks)
        self.answering.add(port)
        place = DiskPlace(Path("/data"), node.name, "m", FetchService("127.0.0.1", port, "token"))
        ranges = SimpleNamespace(look=lambda _: SimpleNamespace(place=place))
        return SimpleNamespace(ranges=ranges, close=lambda: None)

    def client(self, place: DiskPlace) -> Any:
        def overview(_: int) -> None:
            if place.service is None or place.service.port not in self.answering:
                raise ShardUnavailableError("the gateway", "it does not answer")

        return SimpleNamespace(calls=SimpleNamespace(overview=overview))


@pytest.fixture
def services(monkeypatch: pytest.MonkeyPatch) -> Iterator[Services]:
    found = Services()
    monkeypatch.setattr(staging_place, "open_client", found.connect)
    monkeypatch.setattr(staging_place, "StagingClient", found.client)
    with closing(SimpleNamespace(close=staging_place._KEPT.clear)):
        yield found


def test_a_service_is_looked_up_again_only_when_it_does_not_answer(
    services: Services, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = Cluster("one"), Cluster("other")

    first = [find_staging(one) for _ in range(3)]
    assert find_staging(other) != first[0]
    assert services.looks == ["one", "other"]
    assert first[0] == first[1] == first[2]

    services.answering.remove(1)
    moved = find_staging(one)
    assert moved != first[0]
    assert find_staging(one) == moved
    assert services.looks == ["one", "other", "one"]
    assert caplog.text.count("is looked up again") == 1


def test_a_look_that_fails_leaves_nothing_behind(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_staging(Cluster("one"))
    services.answering.clear()

    def refuse(_: Cluster) -> None:
        raise ShardUnavailableError("the gateway", "its machine is down")

    with monkeypatch.context() as patch:
        patch.setattr(staging_place, "open_client", refuse)
        for _ in range(2):
            with pytest.raises(ShardUnavailableError, match="is down"):
                find_staging(Cluster("one"))
    find_staging(Cluster("one"))
    assert services.looks == ["one", "one"]
