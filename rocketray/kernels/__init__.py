"""Numba kernels: compiled loops over buffers and columns; they import shared base modules only.

Importing a module of this package compiles its kernels, or loads them from the cache.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

__all__ = ["warm"]


def warm() -> None:
    """Compile every kernel that is not in the cache, as ``make`` does after an installation.

    Takes about 15 s after the first installation, and under a second later.
    """
    for module in pkgutil.iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
