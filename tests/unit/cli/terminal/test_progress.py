"""What goes on is told again where nothing else is said and there is no terminal."""

from __future__ import annotations

import io
import time

from support.harness.patience import wait_until

from rocketray.cli.terminal.progress import ProgressDisplay


def test_a_long_step_is_told_again() -> None:
    stream = io.StringIO()
    with ProgressDisplay(stream, 0.1) as progress:
        progress.show("starting Ray")
        wait_until(lambda: stream.getvalue().count("still") >= 2)
        progress.say("a node runs")
    told = [line.partition(" s  ")[2] for line in stream.getvalue().splitlines()]
    assert told[0] == "starting Ray"
    assert told[-1] == "a node runs"
    assert told.count("still starting Ray") >= 2
    time.sleep(0.3)
    assert len(stream.getvalue().splitlines()) == len(told), "it ends with the block"
