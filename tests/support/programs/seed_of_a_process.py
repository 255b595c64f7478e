"""A file of tests that ``test_seeds`` runs in a process of its own: it tells the seed that it got."""

from __future__ import annotations

import os
from pathlib import Path

TOLD_IN = "SEED_TOLD_IN"


def test_it(seed: int) -> None:
    Path(os.environ[TOLD_IN]).write_text(str(seed))
