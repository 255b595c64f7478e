"""Numba kernels: compiled loops over buffers and columns; they import shared base modules only.

    __pycache__/all.key     what the machine code of all kernels in that folder was compiled for

A kernel is compiled, or loaded from the cache, on its first call or by ``warm``.
"""

from __future__ import annotations

import hashlib
import pkgutil
import platform
from contextlib import suppress
from importlib import import_module
from importlib.metadata import version
from os import W_OK, access
from pathlib import Path

from rocketray.base import environment

__all__ = ["compile_once", "warm", "warm_imported"]

_KEY_FILE = Path(__file__).parent / "__pycache__" / "all.key"
_PROCESSOR = ("model name", "flags", "CPU part", "Features")  # the lines of /proc/cpuinfo


def compile_once() -> None:
    """Compile every kernel that is not cached, so that no call waits for it: 20 s, once.

    Where it was done before, nothing is imported or loaded, unless the cache is elsewhere.
    """
    if not _is_cached_here():
        warm()
        return
    # A key that cannot be read or written costs the loading of all kernels, 0.4 s, and no more.
    key = _key()
    with suppress(OSError):
        if _KEY_FILE.read_text() == key:
            return
    warm()
    with suppress(OSError):
        _KEY_FILE.write_text(key)


def warm() -> None:
    """Compile or load every kernel: 0.4 s of processor time, and about 20 s if none is cached."""
    for one in pkgutil.iter_modules(__path__):
        import_module(f"{__name__}.{one.name}")
    warm_imported()


def warm_imported() -> None:
    """Compile or load the kernels of the modules that are imported so far."""
    import_module(f"{__name__}._compile").compile_all()


def _is_cached_here() -> bool:
    """Return whether this process's cache is the folder of the key; see Numba's documentation."""
    return not environment.process_environ().get("NUMBA_CACHE_DIR") and access(
        _KEY_FILE.parent, W_OK
    )


def _key() -> str:
    """Return what Numba's machine code depends on: the sources, the versions and the processor."""
    lines = []
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    parts = [*{line: None for line in lines if line.startswith(_PROCESSOR)}, platform.machine()]
    parts += [platform.python_version(), version("numba"), version("llvmlite"), version("numpy")]
    for path in sorted(Path(__file__).parent.glob("*.py")):
        # As Numba's own cache does: by time and size, without reading the source.
        found = path.stat()
        parts.append(f"{path.name} {found.st_mtime_ns} {found.st_size}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
