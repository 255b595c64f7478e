"""The versions of files: what is written, read and refused."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from rocketray.base.file_form import FileForm, UnknownVersionError
from rocketray.errors import StoreVersionError

FORM = FileForm("groups.json", 2)


def test_what_is_written_is_read() -> None:
    assert FORM.of({"groups": []}) == {"version": 2, "groups": []}
    assert FORM.content(FORM.of({"groups": []})) == {"version": 2, "groups": []}


def test_an_older_version_is_read_and_a_file_without_one_is_the_oldest() -> None:
    assert FORM.content({"version": 1, "groups": []})["groups"] == []
    assert FORM.content({"groups": []}) == {"groups": []}


def test_a_later_version_is_refused_with_what_to_do() -> None:
    with pytest.raises(StoreVersionError) as refused:
        FORM.content({"version": 3}, "/data/groups.json")
    assert str(refused.value) == (
        "/data/groups.json: its version is 3, and this release of rocketray reads versions up to "
        "2; use the release that wrote it, or a newer one"
    )
    again = pickle.loads(pickle.dumps(refused.value))
    assert (type(again), str(again)) == (UnknownVersionError, str(refused.value))


@pytest.mark.parametrize("value", [{"version": "2"}, {"version": 0}, {"version": True}, [], None])
def test_what_is_no_version_is_damage(value: Any) -> None:
    with pytest.raises(ValueError, match="version is "):
        FORM.content(value)
