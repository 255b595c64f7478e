"""The author's own code, told from Python's, from installed packages, and from ours."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import rocketray

_INSTALLED = (
    Path(rocketray.__file__).parent,
    *(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
)


def is_installed(file: Path) -> bool:
    """Return whether *file* is Python's, ours, or of an installed package."""
    is_known = any(file.is_relative_to(each) for each in _INSTALLED)
    return is_known or not {"site-packages", "dist-packages"}.isdisjoint(file.parts)
