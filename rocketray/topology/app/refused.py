"""Features of Faust's app that ours refuses, each with an alternative."""

from __future__ import annotations

from typing import Any, NoReturn

import faust

from rocketray.errors import ConfigError

__all__ = ["Refused"]


class Refused(faust.App):  # type: ignore[misc]  # Faust's types are not followed
    """Faust's app without LiveCheck."""

    def LiveCheck(self, **_: Any) -> NoReturn:  # noqa: N802  # Faust's name
        """Raise ``ConfigError``."""
        raise ConfigError(
            "LiveCheck is not offered: it needs a second cluster of Faust's own; test agents with "
            "rocketray.testing, and watch a running app with rocketray groups lag"
        )
