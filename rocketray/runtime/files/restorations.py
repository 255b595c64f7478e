"""The restorations of a queue: where its log ended in each backup that it was restored from.

Behind such an end, the original queue and the restored one have other messages at the same offsets.
So an offset that is kept elsewhere is valid only together with the restorations of its time.

``restored.json``, in the shard's directory, is written before the restored queue is used. Backups
and moves of the queue copy it, so a queue that is restored twice has both:

    {"version": 1, "restorations": [["<id>", 4711]]}
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from rocketray.base.file_form import FileForm
from rocketray.errors import StoreError

from .state_files import read_json, write_json

RESTORED_FILE = "restored.json"
_FORM = FileForm(RESTORED_FILE)
_ID_MAX_CHARS = 64  # ours have 32: uuid4().hex


class Restoration(NamedTuple):
    """One restoration of a queue: all queues of a directory have its *id*, each its own *end*."""

    id: str
    end: int


def restorations_of(directory: Path) -> tuple[Restoration, ...]:
    """Return the restorations of the shard in *directory*, oldest first.

    Raises:
        StoreError: the file is damaged, or of a later version.
    """
    path = directory / RESTORED_FILE
    value = read_json(path, _FORM)
    if value is None:
        return ()
    try:
        return tuple(_checked(*each) for each in value["restorations"])
    except (LookupError, TypeError, ValueError) as error:
        raise StoreError(
            f"{path} is damaged ({error!r:.200}); restore the data directory again"
        ) from None


def note_restoration(directory: Path, restoration: Restoration) -> None:
    """Add a restoration to those of the shard in *directory*; durable on return."""
    found = [list(each) for each in (*restorations_of(directory), restoration)]
    write_json(directory / RESTORED_FILE, _FORM.of({"restorations": found}), backup=False)


def _checked(its_id: Any, end: Any) -> Restoration:
    if not isinstance(its_id, str) or not 0 < len(its_id) <= _ID_MAX_CHARS:
        raise ValueError(f"id {its_id!r:.80}")
    if type(end) is not int or end < 0:
        raise ValueError(f"end {end!r:.80}")
    return Restoration(its_id, end)
