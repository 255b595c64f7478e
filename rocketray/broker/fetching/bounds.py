"""The bounds of queues, read from the control pages of their shards."""

from __future__ import annotations

from pathlib import Path

from rocketray.runtime.files.paths import control_path
from rocketray.runtime.files.restorations import Restoration, restorations_of
from rocketray.runtime.ipc.control_page_reader import ControlView
from rocketray.store.queues.gaps_file import gaps_of

from .read_plan import Bounds, QueueKey


class QueuePages:
    """The control pages of the shards in a data directory. One thread uses it."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._pages: dict[QueueKey, tuple[ControlView, tuple[Restoration, ...]]] = {}

    def find(self, key: QueueKey) -> Bounds | None:
        """Return the bounds of a queue; None if its shard has not run here yet."""
        control = control_path(self._data, *key)
        try:
            found = self._pages.get(key) or (ControlView(control), restorations_of(control.parent))
        except FileNotFoundError:
            return None
        self._pages[key] = page, restorations = found
        minimum = page.minimum()
        visible = max(minimum, page.visible())
        return Bounds(minimum, visible, gaps_of(control.parent, *key), restorations)

    def forget(self) -> None:
        """Open the pages again: a topic may have been created again under its old name."""
        self._pages.clear()
