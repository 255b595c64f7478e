"""The command that shows staged and decided batches, over a node in this process."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
from support.harness.command_server import run_here
from support.nodes.staging import decide, rows_of, settle, stage, step

from rocketray.cli.messages import staged
from rocketray.runtime.files.fragment_file import BatchName
from rocketray.testing import Broker


@pytest.mark.proves("spark", "`rocketray staged`, and problems in `rocketray status`")
def test_what_is_staged_and_what_is_decided_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Broker(tmp_path) as broker:
        monkeypatch.setattr(staged, "ask", lambda _data: nullcontext(broker.node))
        monkeypatch.setattr(staged, "overview_of", lambda node, most: node.staging.overview(most))
        empty = run_here("staged")
        assert (empty.code, "decided: 0, repeated: 0" in empty.out) == (0, True)
        broker.topics.create("Out", queues=1)
        broker._stepped.faults["Out", 0].is_down = True
        first, second = BatchName("job", 0), BatchName("job", 1)
        decide(broker, first, stage(broker, first, rows_of(["a", "b"])))
        stage(broker, second, rows_of(["c"]))
        step(broker)
        found = run_here("staged", "--json").lines()
        assert [(each["batch"], each["isDecided"], each["fragments"]) for each in found] == [
            (0, True, 1),
            (1, False, 1),
        ]
        assert "it is down" in found[0]["problem"]
        assert len(run_here("staged", "--max", "1", "--json").lines()) == 1
        shown = run_here("staged").out
        assert "it is down" in shown
        broker._stepped.faults["Out", 0].is_down = False
        settle(broker)
        assert "decided: 1, repeated: 0, messages stored: 2" in run_here("staged").out
