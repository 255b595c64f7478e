from __future__ import annotations

import pickle

import numpy as np
import pytest

from rocketray.base.ack_mode import ACK_PROMISES, Durability, durability_numbered, durability_of
from rocketray.errors import ConfigError
from rocketray.kernels import drain


@pytest.mark.parametrize("mode", Durability)
def test_each_mode_is_found_by_its_text_and_by_its_number(mode: Durability) -> None:
    assert durability_of(mode.text) is mode
    assert durability_numbered(np.int64(mode)) is mode  # type: ignore[arg-type]
    assert pickle.loads(pickle.dumps(mode)) is mode
    assert f"{mode.safe_from} ({mode.text})" in ACK_PROMISES


def test_what_is_no_mode() -> None:
    assert durability_numbered(len(Durability)) is None
    for wrong in ("replicas", 0, None, ["disk"]):
        with pytest.raises(ConfigError, match="'memory' or 'disk'"):
            durability_of(wrong)


def test_numbers_on_disk_keep_their_meaning() -> None:
    """Rings outlive the version of rocketray that wrote them."""
    assert (durability_of("memory").value, durability_of("disk").value) == (0, 1)
    assert not Durability.MEMORY.needs_sync
    assert Durability.DISK.needs_sync


@pytest.mark.parametrize("mode", Durability)
def test_the_kernel_reads_the_table(mode: Durability) -> None:
    assert mode < drain._MODES
    assert drain._SYNC_MODES >> mode & 1 == mode.needs_sync
