"""No message counts twice, and none is left out, whenever the process ends."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from rocketray_demo.tally import Delays, Tally, load_tally, save_tally


def batch(queue_id: int, *offsets: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "queueId": [queue_id] * len(offsets),
            "queueOffset": list(offsets),
            "body": [str(offset).encode() for offset in offsets],
        }
    )


def test_what_comes_again_is_passed_over() -> None:
    tally = Tally()
    assert list(tally.fresh_bodies(batch(0, 1, 5, 7))) == [b"1", b"5", b"7"]
    assert list(tally.fresh_bodies(batch(1, 5))) == [b"5"]
    assert list(tally.fresh_bodies(batch(0, 5, 7, 9))) == [b"9"]
    assert tally.matched == 5
    assert tally.next_offsets == {"0": 10, "1": 6}


def test_a_tally_goes_on_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "agents" / "one.json"
    tally = load_tally(path)
    assert tally == Tally()
    assert tally.take(3, 8)
    tally.add_delay("ATL", -4)
    tally.add_delay("ATL", None)
    save_tally(tally, path)
    again = load_tally(path)
    assert again == tally
    assert again.delays == {"ATL": Delays(flights=2, known=1, sum_minutes=-4)}
    assert not again.take(3, 8)
    assert again.last_ms > 0
    assert [file.name for file in path.parent.iterdir()] == ["one.json"]
