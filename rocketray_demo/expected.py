"""The expected results of the demo, by brute force over the original data frame.

Pandas counts here; no filter, hash or store of ours is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .tally import Delays

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Expected:
    """Numbers of rows, and for each destination of UA and DL the flights and their delays."""

    rows: int
    destinations: int
    late_from_jfk: int
    red_eyes: int
    delays: Mapping[str, Delays]


def count_expected(frame: pd.DataFrame) -> Expected:
    """Count the matching rows of *frame* for each consumer."""
    two_carriers = frame[frame["carrier"].isin(["UA", "DL"])]
    # The numbers of the filters again, on purpose: a shared constant would share a mistake.
    is_late = (frame["dep_delay"] > 60) & (frame["origin"] == "JFK")
    is_red_eye = (frame["dep_time"] >= 2200) | (frame["dep_time"] < 500)
    return Expected(
        rows=len(frame),
        destinations=len(two_carriers),
        late_from_jfk=int(is_late.sum()),
        red_eyes=int(is_red_eye.sum()),
        delays=_delays(two_carriers),
    )


def count_tail_number(frame: pd.DataFrame, tail_number: str) -> int:
    """Count the rows of one aircraft."""
    return int((frame["tailnum"] == tail_number).sum())


def count_flight_key(frame: pd.DataFrame, row: int) -> int:
    """Count the rows with the carrier, flight number and date of the one at position *row*."""
    columns = ["carrier", "flight", "year", "month", "day"]
    return int((frame[columns] == frame[columns].iloc[row]).all(axis=1).sum())


def _delays(frame: pd.DataFrame) -> dict[str, Delays]:
    delays = frame.groupby("dest")["arr_delay"].agg(["size", "count", "sum"])
    return {
        str(dest): Delays(int(flights), int(known), int(total))
        for dest, flights, known, total in delays.itertuples()
    }
