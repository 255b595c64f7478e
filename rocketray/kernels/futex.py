"""Shared numbers between processes: sleeping until one changes, and finding which did.

A number is in a 64-byte line: +0 i64 value, +8 u32 futex word, +12 u32 waiters. Functions take
the line's address; the caller keeps it mapped. ``wait_above`` releases the GIL.

The kernels use futexes of Linux on x86-64. On other systems, ``wait_above`` polls once per
millisecond: the functions ``…_without_futex`` take the kernels' place. ``wait_any`` sleeps until
one of many lines changes, by a call that Linux has since 5.16, and that not every container allows.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import sys
import time
from functools import cache

import numpy as np

from ._compile import InInt64s, Int64s, OutInt64s, kernel
from .intrinsics import (
    address,
    atomic_add_i32,
    atomic_load_i64,
    atomic_load_u32,
    atomic_store_i64,
    cycles,
    pause,
    syscall,
)

# FUTEX_WAITV_MAX of Linux.
MOST_LINES = 128
"""How many lines ``wait_any`` takes."""
_SYS_FUTEX = 202  # x86-64
_SYS_SCHED_YIELD = 24  # x86-64, too
_PAUSES = 16  # then others may have the processor: some 0.3 µs, if none wants it
_LONG_CYCLES = 50_000  # some 20 µs
_SYS_FUTEX_WAITV = 449  # on every architecture
_FUTEX_32 = 2  # the size of a word
_MONOTONIC = 1  # CLOCK_MONOTONIC, by which the time to wake up is given
_WAITER_WORDS = 3  # struct futex_waitv: u64 value, u64 address, u32 flags, u32 reserved
_FUTEX_WAIT = 0
_FUTEX_WAKE = 1
_EVERYONE = 0x7FFFFFFF  # the largest number of waiters that the call takes
# Positions in a line; see the top of the file.
_FUTEX_WORD = 8
_WAITERS = 12
_POLL_S = 0.001  # a thousand looks a second, at the price of a millisecond's delay
_HAS_FUTEX = sys.platform == "linux" and platform.machine() == "x86_64"


def load_without_futex(line: int) -> int:
    """Return the value of the line; everything written before it is visible now."""
    return ctypes.c_int64.from_address(line).value


def publish_without_futex(line: int, value: int) -> None:
    """Set the value and wake all waiters; the line has no other writer."""
    ctypes.c_int64.from_address(line).value = value
    ctypes.c_uint32.from_address(line + _FUTEX_WORD).value += 1


def ring_without_futex(line: int) -> None:
    """Add one to the value and wake all waiters; two concurrent rings may count as one."""
    publish_without_futex(line, load_without_futex(line) + 1)


def ring_for_without_futex(count: int, line: int) -> None:
    """Add one to the number at *count*, then ring the line."""
    ctypes.c_int64.from_address(count).value += 1
    ring_without_futex(line)


def wait_without_futex(
    line: int,
    seen: int,
    timeout_ns: int,
    spin_cycles: int,  # noqa: ARG001 - only the kernel spins
    timespec: Int64s,  # noqa: ARG001 - only the kernel needs the room
) -> int:
    """Return the value once it is above *seen*, or at the timeout."""
    deadline = time.monotonic_ns() + timeout_ns
    while (value := load_without_futex(line)) <= seen and time.monotonic_ns() < deadline:
        time.sleep(_POLL_S)
    return value


def load_all_without_futex(lines: Int64s, values: Int64s) -> None:
    """Write the value of each line to *values*."""
    values[:] = [load_without_futex(line) for line in lines.tolist()]


def wait_any_without_futex(
    lines: Int64s,
    seen: Int64s,
    until_ns: int,
    room: Int64s,  # noqa: ARG001 - only the kernel needs it
) -> None:
    """Return once a line is above what was *seen* of it, or at the time *until_ns*."""
    before = tuple(zip(lines.tolist(), seen.tolist(), strict=True))
    while time.monotonic_ns() < until_ns:
        if any(load_without_futex(line) > value for line, value in before):
            return
        time.sleep(_POLL_S)


if _HAS_FUTEX:

    @kernel
    def load(line: int) -> int:
        """Return the value of the line; everything written before it is visible now."""
        return atomic_load_i64(line)

    @kernel
    def publish(line: int, value: int) -> None:
        """Set the value and wake all waiters; the line has no other writer."""
        atomic_store_i64(line, value)
        # A full fence: either the waiter's load sees the value, or this load sees the waiter.
        atomic_add_i32(line + _FUTEX_WORD, 1)
        if atomic_load_u32(line + _WAITERS) != 0:
            syscall(_SYS_FUTEX, line + _FUTEX_WORD, _FUTEX_WAKE, _EVERYONE, 0, 0, 0)

    @kernel
    def ring(line: int) -> None:
        """Add one to the value and wake all waiters; no ring is lost."""
        # The low half counts, atomically. It wraps after 2^32 rings: a sleeper that read the count
        # just before may then sleep until its timeout, once.
        atomic_add_i32(line, 1)
        atomic_add_i32(line + _FUTEX_WORD, 1)
        if atomic_load_u32(line + _WAITERS) != 0:
            syscall(_SYS_FUTEX, line + _FUTEX_WORD, _FUTEX_WAKE, _EVERYONE, 0, 0, 0)

    @kernel
    def ring_for(count: int, line: int) -> None:
        """Add one to the number at *count*, as :func:`ring` does, then ring the line."""
        atomic_add_i32(count, 1)
        ring(line)

    @kernel
    def _wait(line: int, seen: int, timeout_ns: int, spin_cycles: int, timespec: OutInt64s) -> int:
        value = atomic_load_i64(line)
        now = begun = cycles()
        # Below 0 if the thread was moved to a processor whose time stamp is behind.
        while value <= seen and 0 <= now - begun < spin_cycles:
            for _ in range(_PAUSES):
                pause()
            before = now
            syscall(_SYS_SCHED_YIELD, 0, 0, 0, 0, 0, 0)
            now = cycles()
            value = atomic_load_i64(line)
            if now - before > _LONG_CYCLES:
                break  # others want this processor: one that sleeps is preferred when it is woken
        if value > seen:
            return value
        atomic_add_i32(line + _WAITERS, 1)
        # First announced, then the word, then the value: a publish in between has changed the word,
        # with which the system refuses to sleep, or it sees the waiter and wakes it.
        word = atomic_load_u32(line + _FUTEX_WORD)
        value = atomic_load_i64(line)
        if value <= seen:
            timespec[0] = timeout_ns // 1_000_000_000
            timespec[1] = timeout_ns % 1_000_000_000
            until = address(timespec.view(np.uint8), 0)
            syscall(_SYS_FUTEX, line + _FUTEX_WORD, _FUTEX_WAIT, word, until, 0, 0)
            value = atomic_load_i64(line)
        atomic_add_i32(line + _WAITERS, -1)
        return value

    @kernel
    def load_all(lines: InInt64s, values: OutInt64s) -> None:
        """Write the value of each of *n* lines, int64[n], to *values* int64[n], as :func:`load`."""
        assert len(lines) == len(values)
        for i in range(len(lines)):
            values[i] = atomic_load_i64(lines[i])

    @kernel
    def _wait_any(lines: InInt64s, seen: InInt64s, until_ns: int, room: OutInt64s) -> None:
        count = len(lines)
        assert len(seen) == count
        assert len(room) == count * _WAITER_WORDS + 2
        is_above = False
        for i in range(count):
            # Announced first, as in _wait.
            atomic_add_i32(lines[i] + _WAITERS, 1)
            place = i * _WAITER_WORDS
            room[place] = atomic_load_u32(lines[i] + _FUTEX_WORD)
            room[place + 1] = lines[i] + _FUTEX_WORD
            room[place + 2] = _FUTEX_32
            is_above |= atomic_load_i64(lines[i]) > seen[i]
        if not is_above:
            at = count * _WAITER_WORDS
            room[at] = until_ns // 1_000_000_000
            room[at + 1] = until_ns % 1_000_000_000
            words = room.view(np.uint8)
            until = address(words, at * 8)
            syscall(_SYS_FUTEX_WAITV, address(words, 0), count, 0, until, _MONOTONIC, 0)
        for i in range(count):
            atomic_add_i32(lines[i] + _WAITERS, -1)

else:
    load, publish, ring = load_without_futex, publish_without_futex, ring_without_futex
    ring_for, load_all = ring_for_without_futex, load_all_without_futex
    _wait = wait_without_futex
    _wait_any = wait_any_without_futex


def wait_above(line: int, seen: int, timeout_ns: int, spin_cycles: int = 0) -> int:
    """Return the value once it is above *seen*, or at the timeout; the GIL is released.

    It spins for *spin_cycles* of the processor before it sleeps, for a result that is expected
    sooner than a process wakes up. Meanwhile it yields the processor to others, and if one of them
    takes it for long, it sleeps at once.
    """
    return _wait(line, seen, timeout_ns, spin_cycles, np.zeros(2, np.int64))


@cache
def can_wait_any() -> bool:
    """Return whether the system has, and allows, the call behind :func:`wait_any`."""
    if not _HAS_FUTEX:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall(_SYS_FUTEX_WAITV, None, 0, 0, None, _MONOTONIC)
    return ctypes.get_errno() == errno.EINVAL  # where it is unknown or forbidden, it says so


def wait_any(lines: Int64s, seen: Int64s, timeout_ns: int) -> None:
    """Return once one of *n* lines is above what was seen of it, or at the timeout.

    ``lines`` int64[n] are addresses, ``seen`` int64[n] values; n is 1 to ``MOST_LINES``. The GIL is
    released. It may return sooner: a line was published with the value that it had.
    """
    room = np.zeros(len(lines) * _WAITER_WORDS + 2, np.int64)
    _wait_any(lines, seen, time.monotonic_ns() + timeout_ns, room)


@kernel
def take_changes(numbers: InInt64s, watched: InInt64s, seen: OutInt64s, changed: OutInt64s) -> int:
    """Bring *seen* up to *numbers* at the indices *watched*, and write to *changed* which differed.

    Each number is read once, so what another process writes meanwhile is noticed now or by the next
    call. Return how many indices differed. An index outside of an array is skipped.
    """
    count = 0
    size = min(len(numbers), len(seen))
    for place in range(min(len(watched), len(changed))):
        index = watched[place]
        if 0 <= index < size:
            number = numbers[index]
            if number != seen[index]:
                seen[index] = number
                changed[count] = index
                count += 1
    return count
