"""Spark Structured Streaming; the only package that imports pyspark, and only in its modules.

Importing this package itself does not import pyspark.
"""

from __future__ import annotations

import warnings

# Where pandas 3 is installed, importing pyspark says so every time; nothing here uses pandas.
warnings.filterwarnings(
    "ignore", message="PySpark does not yet fully support pandas", category=FutureWarning
)
