"""``DATA/node.json``: how to reach the node that runs on a data directory.

It is written when the node answers, and removed when it stops. Programs read it, of any release.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rocketray.base.file_form import FileForm

from .paths import node_file
from .state_files import read_json, write_json

_FORM = FileForm("node.json")


def read_description(data: Path) -> dict[str, Any] | None:
    """Return the description of the node on *data*; None if there is none.

    Raises:
        StoreError: the file is damaged. UnknownVersionError: it is of a later version.
    """
    return read_json(node_file(data), _FORM)


def write_description(data: Path, description: Mapping[str, Any]) -> None:
    """Write the description; programs find the node from now on."""
    write_json(node_file(data), _FORM.of(description), backup=False)
