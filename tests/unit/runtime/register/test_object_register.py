"""A register in an object store: what an unavailable one says, and how long that takes."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import obstore
import pytest
from support.nodes.register_servers import BUCKET, every_call, free_port, s3_server, s3_variables

from rocketray.errors import ConfigError, RegisterUnavailableError, StoreError
from rocketray.runtime.register.register import open_register

MODULE = "rocketray.runtime.register.object_register"
Use = Callable[[str], None]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with s3_server() as url:
        yield url


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Use:
    """Set the variables that lead to a server."""

    def set_all(url: str) -> None:
        for name, value in s3_variables(url).items():
            monkeypatch.setenv(name, value)

    return set_all


def test_a_store_that_does_not_answer_is_unavailable_after_a_time(
    use: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{MODULE}._REQUEST_S", 0.2)
    monkeypatch.setattr(f"{MODULE}._CALL_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for port in (silent.getsockname()[1], free_port()):
            use(f"http://127.0.0.1:{port}")
            for call in every_call(open_register("s3://bucket/x")):
                with pytest.raises(RegisterUnavailableError) as raised:
                    call()
                text = str(raised.value)
                assert text.startswith("the register s3://bucket/x is unavailable: ")
                assert f"127.0.0.1:{port}" in text
                assert "\n" not in text


def test_a_bucket_that_does_not_exist_is_named(use: Use, server: str) -> None:
    use(server)
    register = open_register("s3://no-such-bucket/x")
    with pytest.raises(RegisterUnavailableError, match="NoSuchBucket"):
        register.create("a/b", b"x")
    with pytest.raises(RegisterUnavailableError, match="NoSuchBucket"):
        register.names("a")


def test_an_object_that_is_too_large_is_none_of_the_registers(use: Use, server: str) -> None:
    use(server)
    register: Any = open_register(f"s3://{BUCKET}/large")
    obstore.put(register._store, "a", bytes(2_000_000))
    with pytest.raises(StoreError, match="more than the 1048576"):
        register.read("a")


@pytest.mark.parametrize("url", ["s3://", "s3://bucket/x?versionId=1", "s3://bucket/x#1"])
def test_a_wrong_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"the register s3://"):
        open_register(url)
