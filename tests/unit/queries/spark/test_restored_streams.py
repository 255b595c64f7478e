"""A stream whose checkpoint is ahead of the data directory, which was restored from a backup."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.nodes.local_node import LocalNode
from support.spark.driven_stream import Offset, Stream

from rocketray.broker.backups.backup import back_up
from rocketray.broker.backups.restore import restore
from rocketray.errors import StoreError
from rocketray.runtime.clock import system_clock_ms
from rocketray.runtime.files.home import identity_of

pytestmark = pytest.mark.proves(
    "spark",
    "A checkpoint that is ahead of an older backup is refused, or continues where the log "
    "ends that both have, also when it has grown since",
)

BACKED_UP, READ = 6, 9


def grow(data: Path, bodies: range) -> None:
    with LocalNode(data) as node, node.producer() as producer:
        node.topics.ensure("Trade", 1)
        for number in bodies:
            producer.send("Trade", b"%d" % number)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory, and its older backup, which was restored."""
    path = tmp_path_factory.mktemp("made")
    grow(path / "data", range(BACKED_UP))
    identity_of(path / "data")
    back_up(path / "data", path / "backup", clock_ms=system_clock_ms)
    shutil.copytree(path / "data", path / "copied")
    grow(path / "data", range(BACKED_UP, READ))
    restore(path / "backup", path / "restored", clock_ms=system_clock_ms)
    return path


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Callable[[str], Path]:
    """A function that returns a directory of this test's own."""
    return lambda name: shutil.copytree(made / name, tmp_path / name)


def bodies(start: int, stop: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, stop)]


def read_all(data: Path) -> Offset:
    """Return the checkpoint of a query that has read the directory."""
    stream = Stream(data)
    end, found = stream.read(stream.start())
    assert found == bodies(0, len(found))
    return end


@pytest.mark.parametrize("copy", ["restored", "copied"])
def test_a_checkpoint_ahead_of_an_older_backup_is_an_error_or_goes_on_at_its_end(
    place: Callable[[str], Path], copy: str
) -> None:
    ahead = read_all(place("data"))
    data = place(copy)
    with pytest.raises(StoreError, match=f"at message {READ}, and messages {BACKED_UP} to.*backup"):
        Stream(data).read(ahead)
    stream = Stream(data, failOnDataLoss="false")
    end, found = stream.read(ahead)
    assert found == []
    grow(data, range(100, 105))
    assert stream.read(end)[1] == bodies(100, 105)


def test_a_restored_log_that_has_grown_beyond_the_checkpoint_skips_nothing_in_silence(
    place: Callable[[str], Path],
) -> None:
    ahead = read_all(place("data"))
    data = place("restored")
    grow(data, range(100, 110))
    with pytest.raises(
        StoreError, match=f"restored from a backup that ends at message {BACKED_UP}"
    ):
        Stream(data).read(ahead)
    end, found = Stream(data, failOnDataLoss="false").read(ahead)
    assert found == bodies(100, 110)
    grow(data, range(110, 112))
    assert Stream(data).read(end)[1] == bodies(110, 112), "the new checkpoint is of this directory"


def test_a_checkpoint_that_the_backup_has_continues_in_the_copy_and_not_back_in_the_original(
    place: Callable[[str], Path],
) -> None:
    original, data = place("data"), place("restored")
    kept = read_all(place("copied"))
    grow(data, range(100, 103))
    end, found = Stream(data).read(kept)
    assert found == bodies(100, 103)
    with pytest.raises(StoreError, match="this is the original, or another copy"):
        Stream(original).read(end)
