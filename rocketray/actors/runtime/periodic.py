"""What an actor does again and again in a thread of its own.

A thread that ended at an error would leave its actor looking well: offsets would not be saved any
more, or old files stay, and nobody would hear of it. So what goes wrong once is logged, and done
again the next time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

__all__ = ["start_chore"]

_LOG = logging.getLogger(__name__)


def start_chore(
    name: str,
    every_s: float,
    stop: threading.Event,
    work: Callable[[], object],
    *,
    at_once: bool = False,
) -> threading.Thread:
    """Do *work* each time that *every_s* seconds went by, and *at_once*, until *stop* is set."""

    def run() -> None:
        is_over = not at_once and stop.wait(every_s)
        while not is_over:
            try:
                work()
            except Exception:  # noqa: BLE001  # whatever it was, the next time counts
                _LOG.exception("%s went wrong; trying again in %g s", name, every_s)
            is_over = stop.wait(every_s)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread
