"""The error catalogue has every error that rocketray raises, each once."""

from __future__ import annotations

import re

import pytest
from support.harness.source_tree import ROOT

from rocketray import errors

PAGE = (ROOT / "docs/reference/errors.md").read_text()


@pytest.mark.proves("documentation", "The error catalogue has every error, once, with what to do")
def test_every_error_has_one_row() -> None:
    described = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    public = [getattr(errors, name) for name in errors.__all__]
    raised = [kind.__name__ for kind in public if issubclass(kind, errors.StreamError)]
    assert len(raised) > 25
    assert sorted(described) == sorted(raised)


@pytest.mark.proves("documentation", "The error catalogue has every error, once, with what to do")
def test_every_error_says_what_to_do() -> None:
    rows = re.findall(r"^\| `\w+` \|(.*)\|(.*)\|$", PAGE, re.MULTILINE)
    assert all(len(cell.strip()) > 5 for row in rows for cell in row)
