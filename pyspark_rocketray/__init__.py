"""Automatic registration of ``format("rocketray")`` with Spark.

Spark imports every top-level module named ``pyspark_*`` and registers its ``DefaultSource``.
"""

from __future__ import annotations

from rocketray.queries.spark.source import RocketRaySource as DefaultSource

__all__ = ["DefaultSource"]
