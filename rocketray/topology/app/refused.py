"""What Faust's app has and ours refuses, with what to do instead."""

from __future__ import annotations

from typing import Any, NoReturn

import faust

from rocketray.errors import ConfigError

__all__ = ["Refused"]


class Refused(faust.App):  # type: ignore[misc]  # Faust's types are not followed
    """Faust's app without LiveCheck."""

    def LiveCheck(self, **_: Any) -> NoReturn:  # noqa: N802  # Faust's name
        """Refused."""
        raise ConfigError(
            "LiveCheck is not offered: it needs a second cluster of Faust's own; test agents with "
            "rocketray.testing, and watch a running app with rocketray groups lag"
        )
