"""The coordinator's look at staged batches: the first disk's gateway stores them, if it runs."""

from __future__ import annotations

import logging
from collections.abc import Callable

from rocketray.actors.client.actor_names import actor_or_none
from rocketray.runtime.calls.endpoint import GATEWAY_NAME, SPARE_GATEWAY_NAME
from rocketray.runtime.files.home import Home
from rocketray.runtime.ray_process.ray_runtime import GetTimeoutError, RayError, ray
from rocketray.services.staging.staging_service import has_staged

from .cluster_state import Problems

_LOG = logging.getLogger(__name__)
_SUBJECT = "staged batches"
_ANSWER_S = 10.0  # a gateway that Ray is starting again takes seconds
_GATEWAYS = (GATEWAY_NAME, SPARE_GATEWAY_NAME)


class StagedWatch:
    """Keeps the gateway running while there are staged batches, and notes what is wrong with them.

    Each method is called periodically.
    """

    def __init__(self, home: Home, problems: Problems, open_gateway: Callable[[str], None]) -> None:
        """Take the home of the first disk, which is here."""
        self._home = home
        self._problems = problems
        self._open_gateway = open_gateway

    def open(self) -> None:
        """Start the gateway if something is staged."""
        if has_staged(self._home.directory()):
            self._open_gateway("")

    def look(self) -> None:
        """Note what staged batches wait for, as the process says that stores them."""
        is_staged = has_staged(self._home.directory())
        lines, is_known = self._lines() if is_staged else ([], True)
        if lines:
            self._problems.note(_SUBJECT, "; ".join(lines))
        elif is_known:
            self._problems.resolve(_SUBJECT)

    def _lines(self) -> tuple[list[str], bool]:
        """Return what the two processes of the gateway say, and whether both have answered."""
        found: list[str] = []
        answers = 0
        for name in _GATEWAYS:
            gateway = actor_or_none(self._home.cluster, name)
            if gateway is None:
                continue  # it is started by open()
            try:
                found += ray.get(gateway.staging_problems.remote(), timeout=_ANSWER_S)
                answers += 1
            except (RayError, GetTimeoutError) as error:  # Ray starts it again
                _LOG.info("%s does not say what staged batches wait for: %s", name, error)
        return found, answers == len(_GATEWAYS)
