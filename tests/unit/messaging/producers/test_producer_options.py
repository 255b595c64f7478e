"""The options of producers and sends."""

from __future__ import annotations

import pytest

from rocketray.broker.topics.ack_mode import durability_of
from rocketray.errors import ConfigError
from rocketray.runtime.ipc.acknowledgement import Durability


def test_another_ack_mode_is_refused() -> None:
    assert durability_of("disk") is Durability.DISK
    with pytest.raises(ConfigError, match="'replicas'"):
        durability_of("replicas")
