"""A shard's answer to a batch: a status on the wire, an error in the program."""

from __future__ import annotations

from pathlib import Path

from rocketray.errors import (
    ConfigError,
    CorruptRecordError,
    InvalidMessageError,
    MessageTooLargeError,
    OwnerFencedError,
    ShardFencedError,
    ShardUnavailableError,
    StoreFullError,
    StreamError,
)

from .acknowledgement import AppendStatus


def refusal(status: AppendStatus, shard: str, data: Path, *, is_here: bool = True) -> StreamError:
    """Return the error for which the shard refused the batch.

    *data* is the directory of its disk, which may not be on this machine.
    """
    match status:
        case AppendStatus.STORE_FULL:
            there = "" if is_here else ", on the machine that rocketray status names,"
            return StoreFullError(
                f"shard {shard}: the disk of {data}{there} is full; nothing was stored: free space "
                f"(see: df {data}), lower a topic's retention with: rocketray topics alter TOPIC "
                "--retention 72h, or delete one, then send again"
            )
        case AppendStatus.FENCED:
            return ShardFencedError(f"shard {shard}: a newer process owns it; send again")
        case AppendStatus.OWNER_FENCED:
            return OwnerFencedError(shard)
        case AppendStatus.NOT_WRITABLE:
            return ConfigError(
                f"shard {shard}: the topic has no write permission; change it with: "
                "rocketray topics alter TOPIC --perm 6"
            )
        case AppendStatus.MESSAGE_ILLEGAL:
            return InvalidMessageError(f"shard {shard} refused the batch as malformed")
        case _:
            return ShardUnavailableError(
                f"shard {shard}",
                "it could not store the batch or flush it to disk, so the outcome is unknown: see "
                "its log, and look for the messages before you send them again",
            )


def status_of(error: Exception) -> AppendStatus:
    """Return the status for the error with which a batch could not be stored: the reverse."""
    if isinstance(error, StoreFullError):
        return AppendStatus.STORE_FULL
    if isinstance(error, ShardFencedError):
        return AppendStatus.FENCED
    if isinstance(error, OwnerFencedError):
        return AppendStatus.OWNER_FENCED
    if isinstance(error, MessageTooLargeError | InvalidMessageError | CorruptRecordError):
        return AppendStatus.MESSAGE_ILLEGAL
    return AppendStatus.FAILED
