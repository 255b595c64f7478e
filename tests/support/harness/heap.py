"""Keeps the objects few that each garbage collection looks at, in processes with thousands of tests.

What tests import stays: Ray and Spark are half a million objects, at which every full collection
would look, for half a second. So they are exempted soon after they came.
"""

from __future__ import annotations

import gc
import sys

from support.harness.source_tree import forget_sources

_MANY_MODULES = 100


class Heap:
    """The objects of this process that garbage collections look at."""

    def __init__(self) -> None:
        self._modules = 0

    def exempt_all(self) -> None:
        """Exempt all that lives from every later collection."""
        gc.collect()
        gc.freeze()
        self._modules = len(sys.modules)

    def shrink(self) -> None:
        """Forget the sources that were parsed; exempt what lives if many modules were imported."""
        forget_sources()
        if len(sys.modules) > self._modules + _MANY_MODULES:
            self.exempt_all()
