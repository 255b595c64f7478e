"""RocketMQ itself, for the tests of ``make interop``: its jars, a name server and a broker.

The jars come from ROCKETMQ_HOME/lib, else Maven brings them once into ``.cache``. Everything
listens on loopback only, and what RocketMQ writes beside its store goes to a temporary directory.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import pytest
from support.harness.maven import MavenError, maven_jars
from support.harness.patience import wait_until

from rocketray.base.config import CONSUME_QUEUE_ENTRY_BYTES, StoreConfig

VERSION = "5.3.3"
_MODULES = ("rocketmq-broker", "rocketmq-namesrv")
_START_S, _STOP_S = 60, 60
_READY = "boot success"
SMALL_JAVA = ("-Xms64m", "-Xmx512m", "-XX:+UseSerialGC")


def rocketmq_classpath() -> str:
    """The class path of RocketMQ's jars; skips the test, and says why, where they cannot be had."""
    if shutil.which("java") is None:
        pytest.skip("interop needs Java: there is no java on the path")
    home = os.environ.get("ROCKETMQ_HOME")
    if home:
        if not any(Path(home, "lib").glob("rocketmq-broker-*.jar")):
            pytest.skip(f"interop needs RocketMQ's jars: {home}/lib has no rocketmq-broker-*.jar")
        return f"{home}/lib/*"
    artifacts = [f"org.apache.rocketmq:{module}:{VERSION}" for module in _MODULES]
    try:
        return f"{maven_jars(f'rocketmq-{VERSION}', artifacts)}/*"
    except MavenError as error:
        pytest.skip(
            f"interop needs RocketMQ's jars: {error}, or set ROCKETMQ_HOME to an unpacked "
            f"RocketMQ {VERSION}"
        )


def free_port() -> int:
    """A port of loopback that nobody uses, nor the one two below, on which a broker listens too."""
    while True:
        with ExitStack() as stack:
            port = _bind(stack, 0)
            try:
                _bind(stack, port - 2)
            except OSError:
                continue
            return port


class _Server:
    """One Java process and what it printed; killed at the end if it still runs."""

    def __init__(
        self,
        classpath: str,
        main: str,
        settings: Mapping[str, object],
        work: Path,
        java: Sequence[str] = SMALL_JAVA,
    ) -> None:
        work.mkdir(parents=True, exist_ok=True)
        name = main.rpartition(".")[2]
        properties = work / f"{name}.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self._output = work / f"{name}.out"
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                ["java", *java,
                 f"-Duser.home={work}", f"-Drocketmq.home.dir={work}",
                 "-cp", classpath, main, "-c", str(properties)],
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip

        def is_ready() -> bool:
            assert self._process.poll() is None, f"{name} did not start:\n{self._printed()}"
            return _READY in self._printed()

        try:
            wait_until(is_ready, self._printed, within_s=_START_S)
        except AssertionError:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._process.pid

    def stop(self) -> None:
        """End it as an operator does, and wait."""
        self._process.terminate()
        self._process.wait(_STOP_S)

    def kill(self) -> None:
        """End it as a crash does."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.kill()

    def _printed(self) -> str:
        return self._output.read_text("utf-8", "replace")


class NameServer(_Server):
    """RocketMQ's name server."""

    def __init__(self, classpath: str, work: Path) -> None:
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        settings = {"listenPort": port, "bindAddress": "127.0.0.1"}
        super().__init__(classpath, "org.apache.rocketmq.namesrv.NamesrvStartup", settings, work)


class Broker(_Server):
    """RocketMQ's broker over a store directory whose files have the sizes of *config*."""

    def __init__(
        self,
        classpath: str,
        work: Path,
        *,
        name: str,
        name_server: str,
        directory: Path,
        config: StoreConfig,
        more: Mapping[str, object],
        java: Sequence[str] = SMALL_JAVA,
    ) -> None:
        entries = config.consume_queue_segment_entries
        settings = {
            "brokerClusterName": "interop",
            "brokerName": name,
            "brokerId": 0,
            "brokerIP1": config.store_host[0],
            "bindAddress": "127.0.0.1",
            "listenPort": config.store_host[1],
            "haListenPort": free_port(),
            "namesrvAddr": name_server,
            "storePathRootDir": directory,
            "mappedFileSizeCommitLog": config.commit_log_segment_bytes,
            "mappedFileSizeConsumeQueue": entries * CONSUME_QUEUE_ENTRY_BYTES,
            "maxHashSlotNum": config.index_hash_slots,
            "maxIndexNum": config.index_entries,
            "enablePropertyFilter": "true",
            "autoCreateTopicEnable": "true",
            "timerWheelEnable": "false",
            **more,
        }
        main = "org.apache.rocketmq.broker.BrokerStartup"
        super().__init__(classpath, main, settings, work, java)


def _bind(stack: ExitStack, port: int) -> int:
    listener = stack.enter_context(socket.socket())
    listener.bind(("127.0.0.1", port))
    bound: int = listener.getsockname()[1]
    return bound
