"""Kafka itself, for comparisons: a broker with its controller in one process, on loopback.

The jars come from Maven (support.harness.maven): those of the broker, and those of Spark's Kafka source.
"""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path
from typing import Self

from support.harness.maven import maven_jars
from support.harness.patience import wait_until_answered

from .rocketmq import free_port

BROKER, SOURCE = "3.9.1", "4.2.0"
_BROKER_JARS = f"org.apache.kafka:kafka_2.13:{BROKER}"
_SOURCE_JARS = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SOURCE}"
_OF_THE_SOURCE = ("spark-sql-kafka-", "spark-token-provider-", "kafka-clients-", "commons-pool2-")
_CLUSTER_ID = "cm9ja2V0cmF5LWthZmthMQ"  # any 16 bytes, in base64
_START_S, _STOP_S = 60, 60
_JAVA = ("java", "-Xms256m", "-Xmx1g", "-XX:+UseG1GC")


def source_jars() -> list[Path]:
    """The jars of Spark's Kafka source; Spark has the others that it needs."""
    jars = maven_jars(f"spark-kafka-{SOURCE}", [_SOURCE_JARS])
    return [jar for jar in sorted(jars.glob("*.jar")) if jar.name.startswith(_OF_THE_SOURCE)]


class KafkaBroker:
    """A broker whose topics have *partitions*; a topic is created by its first use."""

    def __init__(self, work: Path, partitions: int) -> None:
        self._classpath = f"{maven_jars(f'kafka-{BROKER}', [_BROKER_JARS])}/*"
        port, controller = free_port(), free_port()
        self.address = f"127.0.0.1:{port}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": work / "logs",
            "num.partitions": partitions,
            "group.initial.rebalance.delay.ms": 0,  # as in the properties that Kafka ships
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
        }
        work.mkdir(parents=True, exist_ok=True)
        properties = work / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        tool = ("kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(properties))
        subprocess.run([*_JAVA, "-cp", self._classpath, *tool], check=True, capture_output=True)
        with (work / "kafka.out").open("wb") as output:
            self._process = subprocess.Popen(
                [*_JAVA, "-cp", self._classpath, "kafka.Kafka", str(properties)],
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip
        self._wait(port)

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._process.pid

    def _wait(self, port: int) -> None:
        def answer() -> None:
            assert self._process.poll() is None, "Kafka did not start"
            socket.create_connection(("127.0.0.1", port), 1).close()

        try:
            wait_until_answered(answer, OSError, within_s=_START_S)
        except AssertionError:
            self._process.kill()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
