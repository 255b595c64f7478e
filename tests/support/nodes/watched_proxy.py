"""A proxy in the environment that nobody may use: it counts who comes, and answers nobody."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

PROXY_NAMES = ("http_proxy", "https_proxy", "all_proxy", "grpc_proxy")
NO_PROXY_NAMES = ("no_proxy", "no_grpc_proxy")


@contextmanager
def unused_proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Have all variables name a proxy, for loopback, too; fail if it was connected to."""
    with socket.create_server(("127.0.0.1", 0)) as listener, monkeypatch.context() as variables:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        for name in NO_PROXY_NAMES:
            variables.delenv(name, raising=False)
            variables.delenv(name.upper(), raising=False)
        for name in PROXY_NAMES:
            variables.setenv(name, url)
            variables.setenv(name.upper(), url)
        yield url
        came, _, _ = select.select([listener], [], [], 0)
        assert not came, "the proxy was connected to"
