"""What goes and what stays: the policy, a row a case, on five files of a hundred bytes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rocketray.errors import ConfigError
from rocketray.store.retention import (
    AMPLE_BYTES,
    FULL,
    KEEP_ALL,
    DiskUse,
    LogFile,
    Reason,
    RetentionPolicy,
    expired_files,
)

FILES = [LogFile(start, 100, 500 - start) for start in range(0, 500, 100)]
LOG_END = 450  # ages are 500, 400, 300, 200; behind the files are 350, 250, 150, 50 bytes
EMPTY, CROWDED, FORCIBLY = DiskUse(0, 10_000), DiskUse(8_000, 2_000), DiskUse(8_650, 1_350)
TIME, SIZE, DISK = Reason.TIME, Reason.SIZE, Reason.DISK


def gone(
    policy: RetentionPolicy,
    *,
    needed_from: int | None = None,
    disk: DiskUse = EMPTY,
    log_end: int = LOG_END,
) -> list[tuple[Reason, bool]]:
    expired = expired_files(
        FILES,
        policy,
        log_end=log_end,
        needed_from=needed_from,
        disk=disk,
    )
    assert [one.file for one in expired] == FILES[: len(expired)]
    return [(one.reason, one.was_held) for one in expired]


@pytest.mark.proves("retention", "Files are removed by age, by size and by disk use")
@pytest.mark.parametrize(
    ("policy", "needed_from", "disk", "expected"),
    [
        (KEEP_ALL, None, EMPTY, []),
        (KEEP_ALL, None, DiskUse(10_000, 0), []),
        (RetentionPolicy(max_age_ms=501), None, EMPTY, []),
        (RetentionPolicy(max_age_ms=500), None, EMPTY, [(TIME, False)]),
        (RetentionPolicy(max_age_ms=201), None, EMPTY, 3 * [(TIME, False)]),
        (RetentionPolicy(max_age_ms=1), None, EMPTY, 4 * [(TIME, False)]),
        (RetentionPolicy(max_bytes=351), None, EMPTY, []),
        (RetentionPolicy(max_bytes=350), None, EMPTY, [(SIZE, False)]),
        (RetentionPolicy(max_bytes=50), None, EMPTY, 4 * [(SIZE, False)]),
        (RetentionPolicy(400, 150), None, EMPTY, 2 * [(TIME, False)] + [(SIZE, False)]),
        # A group holds what it has not finished, to twice the limit.
        (RetentionPolicy(max_age_ms=300), 0, EMPTY, []),
        (RetentionPolicy(max_age_ms=300), 99, EMPTY, []),
        (RetentionPolicy(max_age_ms=300), 100, EMPTY, [(TIME, False)]),
        (RetentionPolicy(max_age_ms=300), 250, EMPTY, 2 * [(TIME, False)]),
        (RetentionPolicy(max_age_ms=300), 450, EMPTY, 3 * [(TIME, False)]),
        (RetentionPolicy(max_age_ms=250), 0, EMPTY, [(TIME, True)]),
        (RetentionPolicy(max_age_ms=200), 100, EMPTY, [(TIME, False), (TIME, True)]),
        (RetentionPolicy(max_bytes=175), 0, EMPTY, [(SIZE, True)]),
        (RetentionPolicy(max_bytes=176), 0, EMPTY, []),
        # On a crowded disk it does not; a forcibly cleaned one knows no age either.
        (
            RetentionPolicy(max_age_ms=300),
            100,
            CROWDED,
            [(TIME, False), (TIME, True), (TIME, True)],
        ),
        (RetentionPolicy(max_age_ms=501), 100, CROWDED, []),
        (RetentionPolicy(max_age_ms=501), 100, FORCIBLY, [(DISK, False), (DISK, True)]),
        (RetentionPolicy(max_age_ms=500), None, FORCIBLY, [(TIME, False), (DISK, False)]),
        # A node's own queues: what is needed stays, however full the disk is.
        (RetentionPolicy(only_unneeded=True), 0, FORCIBLY, []),
        (RetentionPolicy(only_unneeded=True), 199, FORCIBLY, [(Reason.UNNEEDED, False)]),
        (RetentionPolicy(only_unneeded=True), 200, EMPTY, 2 * [(Reason.UNNEEDED, False)]),
        (RetentionPolicy(only_unneeded=True), None, EMPTY, 4 * [(Reason.UNNEEDED, False)]),
        (RetentionPolicy(500, only_unneeded=True), None, FORCIBLY, [(Reason.UNNEEDED, False)]),
        (RetentionPolicy(1, only_unneeded=True), 99, FORCIBLY, []),
        (RetentionPolicy(max_age_ms=501), None, DiskUse(10_000, 0), 4 * [(DISK, False)]),
    ],
)
def test_files_go_by_age_by_size_and_by_disk(
    policy: RetentionPolicy,
    needed_from: int | None,
    disk: DiskUse,
    expected: list[tuple[Reason, bool]],
) -> None:
    assert gone(policy, needed_from=needed_from, disk=disk) == expected


@pytest.mark.proves("retention", "The newest file is never removed")
def test_the_file_of_the_last_record_stays_whatever_is_asked() -> None:
    for log_end in (1, 99, 100):
        assert gone(RetentionPolicy(1, 1), disk=DiskUse(10_000, 0), log_end=log_end) == []
    assert len(gone(RetentionPolicy(1), log_end=101)) == 1


def test_a_file_that_nothing_dates_is_kept_by_time_and_counted_by_size() -> None:
    undated = [LogFile(0, 100, None), *FILES[1:]]
    for policy, count in ((RetentionPolicy(1), 0), (RetentionPolicy(None, 350), 1)):
        expired = expired_files(
            undated,
            policy,
            log_end=LOG_END,
            needed_from=None,
            disk=EMPTY,
        )
        assert len(expired) == count


def test_no_file_is_looked_at_behind_the_first_that_stays() -> None:
    def files() -> Iterator[LogFile]:
        yield from FILES[:2]
        pytest.fail("a file behind one that stays was looked at")

    expired = expired_files(
        files(),
        RetentionPolicy(max_age_ms=450),
        log_end=LOG_END,
        needed_from=None,
        disk=EMPTY,
    )
    assert len(expired) == 1


@pytest.mark.proves("retention", "Disk limits apply only while little is free")
def test_limits_hold_only_while_little_is_free() -> None:
    assert DiskUse(9 * AMPLE_BYTES, AMPLE_BYTES - 1).reaches(FULL)
    assert not DiskUse(9 * AMPLE_BYTES, AMPLE_BYTES).reaches(FULL)  # as full, but enough is free
    assert not DiskUse(89, 11).reaches(FULL)
    assert DiskUse(90, 10).reaches(FULL)
    assert DiskUse(0, 0).ratio == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: RetentionPolicy(max_age_ms=0),
        lambda: RetentionPolicy(max_bytes=-1),
        lambda: RetentionPolicy(max_age_ms=1 << 63),
    ],
)
def test_what_cannot_be_meant_is_refused(make: object) -> None:
    assert callable(make)
    with pytest.raises(ConfigError, match="retention"):
        make()
