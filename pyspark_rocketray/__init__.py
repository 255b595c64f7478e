"""So that Spark finds the data source by itself."""

from __future__ import annotations
