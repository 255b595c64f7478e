"""Spark Structured Streaming: source and sinks; only the modules of this package import pyspark.

Importing this package itself does not import pyspark.
"""

from __future__ import annotations

import warnings

# Where pandas 3 is installed, importing pyspark warns every time; nothing here uses pandas.
warnings.filterwarnings(
    "ignore", message="PySpark does not yet fully support pandas", category=FutureWarning
)
