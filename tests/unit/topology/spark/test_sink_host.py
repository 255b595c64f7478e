"""What a host of sinks refuses before there is a Spark session."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketray.errors import ConfigError
from rocketray.topology.spark.sink import SinkHost
from rocketray.topology.spark.sink_spec import SinkSpec


def lake(frame: object, batch_id: int) -> None:
    """A sink."""


@pytest.mark.parametrize("checkpoint", ["kept/one", "./kept/one", "{here}/kept/one"])
def test_two_sinks_do_not_share_a_directory_however_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkpoint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    first = SinkSpec("one", lake, "Trade")  # under the host's checkpoints
    second = SinkSpec("two", lake, "Trade", checkpoint=checkpoint.format(here=tmp_path))
    with pytest.raises(ConfigError, match="sinks 'one' and 'two' have one checkpoint"):
        SinkHost([first, second], data=tmp_path, checkpoints=Path("kept"))
    SinkHost([second], data=tmp_path, checkpoints=Path("kept"))
