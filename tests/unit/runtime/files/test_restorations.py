"""The file of a queue's restorations: what was noted is read, and nothing else is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rocketray.base.file_form import UnknownVersionError
from rocketray.errors import StoreError
from rocketray.runtime.files.restorations import (
    RESTORED_FILE,
    Restoration,
    note_restoration,
    restorations_of,
)


def test_restorations_are_kept_in_their_order(tmp_path: Path) -> None:
    assert restorations_of(tmp_path) == ()
    noted = Restoration("b", 7), Restoration("a", 3)
    for each in noted:
        note_restoration(tmp_path, each)
    assert restorations_of(tmp_path) == noted


@pytest.mark.parametrize(
    "value", [None, 3, [["a"]], [["a", -1]], [["a", True]], [["", 1]], [[1, 1]], [["a" * 65, 1]]]
)
def test_a_damaged_file_is_an_error(tmp_path: Path, value: object) -> None:
    (tmp_path / RESTORED_FILE).write_text(json.dumps({"version": 1, "restorations": value}))
    with pytest.raises(StoreError, match=r"restored\.json is damaged"):
        restorations_of(tmp_path)


def test_a_file_of_a_later_release_is_refused(tmp_path: Path) -> None:
    (tmp_path / RESTORED_FILE).write_text('{"version": 2, "restorations": []}')
    with pytest.raises(UnknownVersionError):
        restorations_of(tmp_path)
