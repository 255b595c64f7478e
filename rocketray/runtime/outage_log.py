"""Warnings of what fails and is tried again: each is logged once until it works again."""

from __future__ import annotations

import logging


class OutageLog:
    """The outages that one object has told of, by what is unavailable; for any thread."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._unavailable: set[object] = set()

    def failed(self, what: object, text: str, *arguments: object) -> None:
        """Log a warning; on debug level if *what* has failed since it worked."""
        level = logging.DEBUG if what in self._unavailable else logging.WARNING
        self._unavailable.add(what)
        self._log.log(level, text, *arguments)

    def works(self, what: object) -> None:
        """Note that *what* works, so that its next failure is logged."""
        self._unavailable.discard(what)
