"""What ``rocketray status`` says of disks that do not answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rocketray.actors.cluster.cluster_state import ClusterState
from rocketray.actors.cluster.disk_service import DiskService
from rocketray.actors.disks.disk_register import DiskRegister
from rocketray.actors.files.home import Home
from rocketray.actors.filtering.filter_rules import FilterRules
from rocketray.actors.topics.placement import Placement

FAR = "00000000-0000-0000-0000-000000000002"


class SilentDisks:
    """The disks of a cluster, of which none answers."""

    def __init__(self, data: Path) -> None:
        uuid = "00000000-0000-0000-0000-000000000001"
        self.register = DiskRegister(Home(str(data), uuid, "here", "n1", "orders"))
        self.register.add(Home("/far", FAR, "there", "n2", "orders", is_joined=True))

    def look(self) -> list[str]:
        return []


def test_a_disk_that_was_drained_may_stay_away_and_one_with_queues_is_a_problem(
    tmp_path: Path,
) -> None:
    (tmp_path / "config").mkdir()
    disks: Any = SilentDisks(tmp_path)
    placement = Placement(1, spread=lambda _, queues: (FAR,) * queues)
    state = ClusterState(tmp_path, FilterRules(), lambda: 0, lambda: 0, placement)
    nothing: Any = None
    service = DiskService(disks, state, nothing, FilterRules(), nothing)
    service.look()
    (said,) = state.problems.lines()
    assert "there, does not answer; its 0 queues are unavailable" in said
    service.set_draining(FAR, True)
    service.look()
    assert state.problems.lines() == []
    state.topics.create("T", 2)
    service.look()
    (said,) = state.problems.lines()
    assert "its 2 queues are unavailable" in said
    assert DiskRegister(disks.register.homes[""]).draining == {FAR}
