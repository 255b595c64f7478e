"""A process that has more queues than the system allows says so, and what to do."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from rocketray.broker.shards import shard_process
from rocketray.broker.shards.process_limits import ProcessLimits, shortage
from rocketray.broker.shards.shard_process import ShardProcess
from rocketray.broker.topics.catalog import TopicCatalog
from rocketray.broker.topics.placement import Placement
from rocketray.message import Message


def test_what_lacks_is_named_with_the_number_that_is_enough() -> None:
    assert shortage(ProcessLimits(20_000, 65_530), "common-0", 2000) is None
    assert shortage(ProcessLimits(None, None), "common-0", 1 << 20) is None
    files = shortage(ProcessLimits(4000, 65_530), "common-0", 2000)
    assert files is not None
    assert "has 2,000 queues, and needs up to 4,100 open files, where 4,000 are allowed" in files
    assert "ulimit -n 4100" in files
    assert "max_map_count" not in files
    both = shortage(ProcessLimits(4000, 10_000), "common-0", 2000)
    assert both is not None
    assert "LimitNOFILE=4100" in both
    assert "sysctl -w vm.max_map_count=11000" in both
    assert shortage(ProcessLimits(4100, 11_000), "common-0", 2000) is None


def test_as_many_queues_as_are_enough_lack_nothing_and_one_more_does() -> None:
    for limits in (
        ProcessLimits(20_000, 65_530),
        ProcessLimits(1024, None),
        ProcessLimits(None, 65_530),
        ProcessLimits(1 << 20, 4000),
    ):
        queues = limits.queues()
        assert queues is not None
        assert shortage(limits, "common-0", queues) is None
        assert shortage(limits, "common-0", queues + 1) is not None
    assert ProcessLimits(None, None).queues() is None
    assert ProcessLimits(10, 65_530).queues() == 0


def test_the_limits_are_those_of_this_process() -> None:
    limits = ProcessLimits.of_system()
    assert limits.open_files in {resource.getrlimit(resource.RLIMIT_NOFILE)[0], None}
    if Path("/proc/sys/vm").is_dir():
        assert limits.maps is not None
        assert limits.maps > 1000


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="descriptors are listed on Linux")
def test_a_queue_has_no_more_files_and_maps_than_is_counted_and_its_process_reports_it(
    data: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def held() -> tuple[int, int]:
        with Path("/proc/self/maps").open() as maps:
            return sum(1 for _ in Path("/proc/self/fd").iterdir()), sum(1 for _ in maps)

    def use(queue_id: int) -> None:
        store = process.shard("T", queue_id).writer.store
        store.put([Message("T", b"body", "tag", ("key",))], queue_id)

    queues = 50
    TopicCatalog().with_topic("T", queues, Placement(cores=1)).save(data)
    process = ShardProcess(data, "common-0", {}, clock_ms=lambda: 1000)
    use(0)  # with the libraries
    files, maps = held()
    for queue_id in range(1, queues):
        use(queue_id)
    files_now, maps_now = held()
    assert files_now == files, "and one, its lock, since it was created"
    assert (maps_now - maps) / (queues - 1) <= 4, "and one"
    assert process.problems() == {}
    monkeypatch.setattr(shard_process, "_LIMITS", lambda: ProcessLimits(150, None))
    assert "200 open files, where 150 are allowed" in process.problems()["process common-0"]
    process.close()
    ShardProcess(data, "common-0", {}, clock_ms=lambda: 1000).close()
    assert "200 open files, where 150 are allowed" in caplog.text, "a start logs it, too"
