"""The metrics of a node through Ray's own: they appear as ``ray_…`` where Ray's are scraped.

Ray exports what a process recorded last, for as long as the process runs. So a gauge without a
sample is set to NaN, which Prometheus takes for "no value", and not left as it was. Ray's counters
only grow: they get the differences, and the whole after a reset. Samples of single queues are left
out, because Ray keeps every series in each of its agents.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from prometheus_client.metrics_core import Metric

from rocketray.errors import StreamError

_LOG = logging.getLogger(__name__)
_INTERVAL_S = 10.0  # as often as Ray's agents report by default
_QUEUE = "queue_id"
_Labels = tuple[tuple[str, str], ...]


class Instruments(Protocol):
    """``ray.util.metrics``, whose classes have these names."""

    def Gauge(self, name: str, description: str, tag_keys: tuple[str, ...]) -> Any:  # noqa: N802
        """Make a gauge."""

    def Counter(self, name: str, description: str, tag_keys: tuple[str, ...]) -> Any:  # noqa: N802
        """Make a counter."""


class RayMirror:
    """Reads the metrics every ten seconds, and records them with Ray."""

    def __init__(self, read: Callable[[], list[Metric]], instruments: Instruments) -> None:
        """Take what reads the node; see :meth:`start`."""
        self._read = read
        self._instruments = instruments
        self._made: dict[str, Any] = {}
        self._last: dict[str, dict[_Labels, float]] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ray metrics", daemon=True)

    def start(self) -> None:
        """Begin to record, every ten seconds, in a thread."""
        self._thread.start()

    def close(self) -> None:
        """Record no more; the gauges have no value from now on."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
        self.record(())

    def record(self, families: Iterable[Metric]) -> None:
        """Record the values of one reading; gauges of which there is none have no value."""
        seen: dict[str, dict[_Labels, float]] = {}
        for family in families:
            for sample in family.samples:
                if _QUEUE not in sample.labels:
                    labels = tuple(sample.labels.items())
                    seen.setdefault(family.name, {})[labels] = sample.value
                    self._record(family, labels, sample.value)
        for name, samples in self._last.items():
            # A counter has no "set", and needs none: Prometheus takes its growth.
            if name in self._made and hasattr(self._made[name], "set"):
                for labels in samples.keys() - seen.get(name, {}).keys():
                    self._made[name].set(math.nan, dict(labels))
        self._last |= seen

    def _record(self, family: Metric, labels: _Labels, value: float) -> None:
        if family.name not in self._made:
            is_counter = family.type == "counter"
            make = self._instruments.Counter if is_counter else self._instruments.Gauge
            names = tuple(name for name, _ in labels)
            self._made[family.name] = make(family.name, family.documentation, names)
        made, tags = self._made[family.name], dict(labels)
        if family.type == "counter":
            before = self._last.get(family.name, {}).get(labels, 0.0)
            grown = value - before if value >= before else value
            if grown > 0:  # Ray refuses 0
                made.inc(grown, tags)
        else:
            made.set(value, tags)

    def _run(self) -> None:
        while True:
            try:
                self.record(self._read())
            except (StreamError, OSError) as error:
                _LOG.warning("the node does not answer, so Ray gets no metrics of it: %s", error)
                self.record(())
            if self._stopped.wait(_INTERVAL_S):
                return
