"""A program for tests, as a user writes it: the sinks of an app, until a signal comes.

    python -m support.programs.sink_program DATA CHECKPOINTS

Prints the number of each micro-batch and of its rows.
"""

from __future__ import annotations

import sys
from typing import Any

from rocketray.queries.spark.session import spark_session
from rocketray.queries.spark.sink import SinkHost
from rocketray.topology.app.app import App

app = App("sinks")


@app.sink("Trade", schema="queueOffset bigint", max_rows=10, trigger="10 milliseconds")
def tell(frame: Any, batch_id: int) -> None:
    print(batch_id, frame.count(), flush=True)  # noqa: T201


def main(data: str, checkpoints: str) -> None:
    SinkHost(
        app.sinks,
        data=data,
        checkpoints=checkpoints,
        open_session=lambda: spark_session("sinks", short_lived=True),
    ).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
