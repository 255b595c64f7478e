"""A line on stderr every 15 seconds while a command waits for a silent call.

Ray starts and is joined in one call, which takes a minute or two on a busy machine.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from rocketray.runtime.periodic import telling

from .output import progress

AGAIN_S = 15.0


def waiting(what: str, again_s: float = AGAIN_S) -> AbstractContextManager[None]:
    """Print that *what* is still running, and for how long, until the block is left."""
    return telling(lambda seconds: progress(f"still {what}, for {seconds:.0f} s now"), again_s)
