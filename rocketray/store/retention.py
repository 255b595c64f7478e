"""Which files of a log are too old, too many or in the way of a full disk: decided, not done.

Pure: facts go in (the files with the store time of their last record, how full the disk is, what
the groups still need, the time), and out come the leading files that go, each with its reason.

Rules
  1. Only whole files go, oldest first, and a file that stays keeps all behind it. The newest one,
     which holds the last record, always stays.
  2. Without a limit of time or size nothing is ever deleted; a full disk then refuses messages.
  3. A file that a consumer group has not finished stays until it is twice as old, or there is
     twice as much behind it, as the policy says, or until the disk is ``crowded``.
  4. From ``forcibly`` on, files go whatever their age and whoever needs them, until the disk is
     below it.
  5. With a policy of ``only_unneeded`` nothing goes that somebody needs, however full the disk is:
     for a node's own queues, whose messages have one reader that says what it is done with.

Source: RocketMQ 5.3.3, ``DefaultMessageStore.CleanCommitLogService``, which dates a file by its
last modification. That moves when a file is copied, restored or flushed late; store times do not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from rocketray.errors import ConfigError

__all__ = [
    "KEEP_ALL",
    "DiskLimits",
    "DiskUse",
    "ExpiredFile",
    "LogFile",
    "Reason",
    "RetentionPolicy",
    "expired_files",
]

_HELD_FACTOR = 2  # how often the policy's limit a group may hold a file
_LIMIT_MAX = 1 << 62


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """How long the messages of a queue are kept, and how many bytes of its log; None: no limit.

    What is over either limit goes. With ``only_unneeded``, what nobody needs any more goes, when it
    is over a limit if there is one, and nothing else ever does. With ``compacts`` the last message of each key stays
    (see actors/shards/compaction.py), and nothing goes for its age or for room.
    """

    max_age_ms: int | None = None
    max_bytes: int | None = None
    only_unneeded: bool = False
    compacts: bool = False

    def __post_init__(self) -> None:
        for name in ("max_age_ms", "max_bytes"):
            value = getattr(self, name)
            if value is not None and not 0 < value <= _LIMIT_MAX:
                raise ConfigError(
                    f"retention: {name} is {value}; give a number above 0, or none to keep all"
                )

    @property
    def keeps_all(self) -> bool:
        """Whether nothing is ever deleted."""
        is_limited = self.max_age_ms is not None or self.max_bytes is not None
        return not (is_limited or self.only_unneeded or self.compacts)


KEEP_ALL = RetentionPolicy()


@dataclass(frozen=True, slots=True)
class DiskUse:
    """How full a file system is, in bytes; ``free`` is what we may still take."""

    used: int
    free: int

    @property
    def ratio(self) -> float:
        """From 0, empty, to 1, full."""
        return self.used / max(self.used + self.free, 1)


@dataclass(frozen=True, slots=True)
class DiskLimits:
    """From which part of a disk in use on what happens; each includes those before it.

    ``crowded``: expired files go though a group needs them. ``forcibly``: files go that are not
    expired. ``full``: messages are refused. While ``ample_bytes`` are free, none of them holds.

    The ranges are RocketMQ's; it moves a value that is outside of them without a word.
    """

    crowded: float = 0.75
    forcibly: float = 0.85
    full: float = 0.90
    ample_bytes: int = 4 << 30

    def __post_init__(self) -> None:
        ranges = {"crowded": (0.10, 0.95), "forcibly": (0.30, 0.85), "full": (0.35, 0.90)}
        for name, (least, most) in ranges.items():
            value = getattr(self, name)
            if not least <= value <= most:
                raise ConfigError(
                    f"disk limit {name} is {value}; give a part from {least} to {most}"
                )
        if not self.crowded <= self.forcibly <= self.full:
            raise ConfigError(
                f"disk limits: crowded {self.crowded}, forcibly {self.forcibly} and full "
                f"{self.full} must not fall"
            )
        if self.ample_bytes < 0:
            raise ConfigError(f"disk limit ample_bytes is {self.ample_bytes}; it is 0 or more")

    def is_reached(self, limit: float, disk: DiskUse) -> bool:
        """Whether *limit*, one of ours, holds for *disk*."""
        return disk.free < self.ample_bytes and disk.ratio >= limit


@dataclass(frozen=True, slots=True)
class LogFile:
    """One file of a log. ``last_store_ms`` is None where no record tells: time keeps it then."""

    start: int
    size: int
    last_store_ms: int | None

    @property
    def end(self) -> int:
        """The physical offset behind it."""
        return self.start + self.size


class Reason(Enum):
    """Why a file goes."""

    TIME = "too old"
    SIZE = "too much behind it"
    DISK = "the disk is too full"
    UNNEEDED = "nobody needs it any more"


@dataclass(frozen=True, slots=True)
class ExpiredFile:
    """A file that goes. ``was_held``: a group had not finished it."""

    file: LogFile
    reason: Reason
    was_held: bool


def expired_files(
    files: Iterable[LogFile],
    policy: RetentionPolicy,
    *,
    log_end: int,
    needed_from: int | None,
    disk: DiskUse,
    limits: DiskLimits,
    now_ms: int,
) -> list[ExpiredFile]:
    """The leading *files*, in order, that go now.

    *log_end* is the physical offset behind the last record, *needed_from* the first one that some
    group has not finished, None without groups. Looks at no file behind the first that stays.
    """
    gone: list[ExpiredFile] = []
    if policy.keeps_all or policy.compacts:
        return gone
    for file in files:
        if file.end >= log_end:
            break
        is_held = needed_from is not None and needed_from < file.end
        if policy.only_unneeded:
            if is_held:
                break
            is_limited = policy.max_age_ms is not None or policy.max_bytes is not None
            if is_limited and _reason(file, policy, 1, log_end, now_ms) is None:
                break
            gone.append(ExpiredFile(file, Reason.UNNEEDED, was_held=False))
            continue
        factor = _HELD_FACTOR if is_held and not limits.is_reached(limits.crowded, disk) else 1
        reason = _reason(file, policy, factor, log_end, now_ms)
        if reason is None and limits.is_reached(limits.forcibly, disk):
            reason = Reason.DISK
        if reason is None:
            break
        gone.append(ExpiredFile(file, reason, is_held))
        disk = DiskUse(disk.used - file.size, disk.free + file.size)
    return gone


def _reason(
    file: LogFile, policy: RetentionPolicy, factor: int, log_end: int, now_ms: int
) -> Reason | None:
    """Which of the policy's limits, *factor* times as large, the file is over."""
    age, size, stored_ms = policy.max_age_ms, policy.max_bytes, file.last_store_ms
    if age is not None and stored_ms is not None and now_ms - stored_ms >= factor * age:
        return Reason.TIME
    if size is not None and log_end - file.end >= factor * size:
        return Reason.SIZE
    return None
