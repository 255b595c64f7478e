"""Methods of Faust's app that could not do here what they say; each refusal says what to do."""

from __future__ import annotations

from typing import Any, NoReturn

import faust

from rocketray.errors import ConfigError

__all__ = ["Refused"]


class Refused(faust.App):  # type: ignore[misc]  # Faust's types are not followed
    """Faust's app without a leader and without LiveCheck."""

    def timer(self, interval: Any, on_leader: bool = False, *more: Any, **options: Any) -> Any:  # noqa: FBT001, FBT002  # Faust's interface
        """Faust's, in every instance."""
        _refuse_leader(asked=on_leader)
        return super().timer(interval, False, *more, **options)  # noqa: FBT003  # the same

    def crontab(self, *arguments: Any, on_leader: bool = False, **options: Any) -> Any:
        """Faust's, in every instance."""
        _refuse_leader(asked=on_leader)
        return super().crontab(*arguments, **options)

    def task(self, *arguments: Any, on_leader: bool = False, **options: Any) -> Any:
        """Faust's, in every instance."""
        _refuse_leader(asked=on_leader)
        return super().task(*arguments, **options)

    def LiveCheck(self, **_: Any) -> NoReturn:  # noqa: N802  # Faust's name
        """Refused."""
        raise ConfigError(
            "LiveCheck is not offered: it needs a second cluster of Faust's own; test agents with "
            "rocketray.testing, and watch a running app with rocketray groups lag"
        )


def _refuse_leader(*, asked: bool) -> None:
    if asked:
        raise ConfigError(
            "on_leader is not offered: no instance leads, so it would never run; run what is to "
            "run once in an app of its own, with one instance"
        )
