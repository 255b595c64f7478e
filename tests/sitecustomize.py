"""Python imports it at the start of each process of the tests: no garbage collection during imports.

Actors, commands and Spark's workers import 100,000 to 200,000 objects that stay. The usual threshold
of 700 new objects would have them searched for garbage again and again, a tenth of the processor
time of their starts. From the first collection on, all is as usual.

And a wall clock that a test may set (support/harness/set_clock.py).
"""

from __future__ import annotations

import gc

from support.harness.set_clock import follow

_IMPORTED = 150_000
_USUAL = gc.get_threshold()


def _begin(_phase: str, _info: dict[str, int]) -> None:
    gc.callbacks.remove(_begin)
    gc.freeze()  # what was imported is not searched later either
    gc.set_threshold(*_USUAL)


gc.callbacks.append(_begin)
gc.set_threshold(_IMPORTED)
follow()
