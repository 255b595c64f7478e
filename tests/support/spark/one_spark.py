"""One JVM of Spark for several programs, one after another: a JVM takes five seconds to start.

Each program has a session of its own, as Spark has it where ``spark-submit`` starts the program. Its
relative paths are those of the JVM, so all programs run in the JVM's directory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

from pyspark import java_gateway
from pyspark.conf import SparkConf

from rocketray.base.environment import with_environ
from rocketray.queries.spark.java import find_java
from rocketray.queries.spark.session import spark_settings
from rocketray.queries.spark.warm_python import python_environ


@contextmanager
def one_spark(directory: Path, environ: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Start it in *directory*; return *environ* with what leads a program there to it."""
    settings = spark_settings(2, "1g", short_lived=True)
    conf = SparkConf(loadDefaults=False).setAll([*settings.items()])
    java = {"JAVA_HOME": str(find_java(environ).home)}
    with chdir(directory), with_environ({**environ, **java, **python_environ()}):
        launch: Any = java_gateway.launch_gateway  # pyspark has no types for it
        gateway = launch(conf)
    parameters = gateway.java_parameters
    try:
        yield {
            **environ,
            "PYSPARK_GATEWAY_PORT": str(parameters.port),
            "PYSPARK_GATEWAY_SECRET": parameters.auth_token,
        }
    finally:
        gateway.shutdown()
        gateway.proc.communicate()  # it ends with its standard input
