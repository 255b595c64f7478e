"""The plan of an app's hosts: what they run, and on which machines. A value, without Ray."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HostPlan:
    """What each host of an app runs, and where; also for hosts that are started later.

    The app is ``path``, ``"module:app"``, and uses the node of ``cluster``. Its module is imported
    from ``directory``, if there is one, or from the archive ``code``, a URI; else it is installed.
    The hosts run on Ray nodes that have all ``labels``. ``data`` is the node's data directory, if
    it is on their machine: Spark's processes read its files, and need not join Ray.
    """

    path: str
    cluster: str
    directory: str | None = None
    code: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    data: str | None = None
