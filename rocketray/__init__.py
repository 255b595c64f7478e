"""Filtered, replayable, queryable message streams: RocketMQ on Ray, Faust and Spark."""

from __future__ import annotations

__version__ = "0.1.0"
