"""The retention policy: which files of a log to remove for their age, for size or for a full disk.

Pure: the input is facts (the files with the age of their last record, the use of the disk, the
groups' needs), the output the leading files to remove, each with its reason.

Rules
  1. Only whole files are removed, oldest first, and a file that stays keeps all behind it. The
     newest one, which holds the last record, always stays.
  2. Without a limit of time or size nothing is ever deleted; a full disk then refuses messages.
  3. A file that a consumer group has not finished stays until it is twice as old, or there is
     twice as much behind it, as the policy says, or until the disk is :data:`CROWDED`.
  4. From :data:`FORCIBLY` on, files are removed whatever their age and their readers, until the
     disk is below it.
  5. With a policy of ``only_unneeded`` no file is removed that a reader needs, however full the
     disk is: for a node's own queues, whose single reader says which messages it has finished.

Source: RocketMQ 5.3.3, ``DefaultMessageStore.CleanCommitLogService``, which dates a file by its
last modification. That changes when a file is copied, restored or flushed late; store times do not
(age_clock.py says how old they make a file).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from rocketray.errors import ConfigError

# The used parts of a disk at which measures begin, as RocketMQ's; each includes those before it.
CROWDED = 0.75
"""Expired files are removed though a group needs them."""
FORCIBLY = 0.85
"""Files are removed that are not expired."""
FULL = 0.90
"""Messages are refused."""
AMPLE_BYTES = 4 << 30
"""While so many bytes are free, none of these limits holds."""
_HELD_FACTOR = 2  # how many times the policy's limit a group may hold a file
_LIMIT_MAX = 1 << 62  # ms or bytes; no age and no log is larger


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """How long the messages of a queue are kept, and how many bytes of its log; None: no limit.

    - A file over either limit is removed.
    - With ``only_unneeded``, files that no reader needs any more are removed, if over a limit when
      there is one, and no other files ever.
    - With ``compacts`` the last message of each key stays (see broker/shards/compaction.py), and no
      file is removed for its age or for disk space.
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
                    f"retention: {name} is {value}; give a number above 0, or none for no limit"
                )

    @property
    def keeps_all(self) -> bool:
        is_limited = self.max_age_ms is not None or self.max_bytes is not None
        return not (is_limited or self.only_unneeded or self.compacts)


KEEP_ALL = RetentionPolicy()


@dataclass(frozen=True, slots=True)
class DiskUse:
    """The use of a file system, in bytes; ``free`` is the part still available to us."""

    used: int
    free: int

    @property
    def ratio(self) -> float:
        """The used part, from 0 (empty) to 1 (full)."""
        return self.used / max(self.used + self.free, 1)

    def reaches(self, limit: float) -> bool:
        """Return whether *limit*, one of the parts above, is reached and free space is scarce."""
        return self.free < AMPLE_BYTES and self.ratio >= limit


@dataclass(frozen=True, slots=True)
class LogFile:
    """One file of a log. ``age_ms`` is None if unknown: no time limit applies then."""

    start: int
    size: int
    age_ms: int | None

    @property
    def end(self) -> int:
        """The physical offset behind the file."""
        return self.start + self.size


class Reason(Enum):
    """The reason that a file is removed."""

    TIME = "too old"
    SIZE = "the topic is too large"
    DISK = "the disk is too full"
    UNNEEDED = "no longer needed"


@dataclass(frozen=True, slots=True)
class ExpiredFile:
    """A file to remove. ``was_held``: a group had not finished it."""

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
) -> list[ExpiredFile]:
    """Return the leading *files*, in order, to remove now.

    *log_end* is the physical offset behind the last record, *needed_from* the first one that a
    group has not finished, None without groups. No file behind the first that stays is examined.
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
            if is_limited and _reason(file, policy, 1, log_end) is None:
                break
            gone.append(ExpiredFile(file, Reason.UNNEEDED, was_held=False))
            continue
        factor = _HELD_FACTOR if is_held and not disk.reaches(CROWDED) else 1
        reason = _reason(file, policy, factor, log_end)
        if reason is None and disk.reaches(FORCIBLY):
            reason = Reason.DISK
        if reason is None:
            break
        gone.append(ExpiredFile(file, reason, is_held))
        # As if the file were gone: no more are removed for the disk than it needs.
        disk = DiskUse(disk.used - file.size, disk.free + file.size)
    return gone


def _reason(file: LogFile, policy: RetentionPolicy, factor: int, log_end: int) -> Reason | None:
    """Return the policy's limit, *factor* times as large, that the file exceeds."""
    age, size = policy.max_age_ms, policy.max_bytes
    if age is not None and file.age_ms is not None and file.age_ms >= factor * age:
        return Reason.TIME
    if size is not None and log_end - file.end >= factor * size:
        return Reason.SIZE
    return None
