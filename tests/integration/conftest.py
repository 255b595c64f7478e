"""Expensive things that integration tests share: one Spark session for the whole run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from rocketray.topology.spark.session import spark_session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The Spark session of the run, on whatever Java this machine has."""
    directory = tmp_path_factory.mktemp("spark")
    session = spark_session("tests", work_directory=directory, short_lived=True)
    yield session
    session.stop()
