"""The URL of a register: which are refused, and with which advice."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rocketray.errors import ConfigError
from rocketray.runtime.register.register import open_register


@pytest.mark.parametrize(
    "url",
    [
        "",
        "/srv/x",
        "memory:///",
        "file:srv",
        "file://host/srv",
        "file:///srv?x=1",
        "ftp://u:pw@h/x",
    ],
)
def test_a_wrong_url_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ConfigError, match="write") as raised:
        open_register(url)
    assert "pw" not in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_directory_with_any_name(tmp_path: Path) -> None:
    directory = tmp_path / "ü %41 #"
    directory.mkdir()
    register = open_register(directory.as_uri())
    assert register.create("a", b"x")
    assert (directory / "a").read_bytes() == b"x"
    assert register.address == directory.as_uri()


@pytest.mark.parametrize(
    ("url", "package"), [("s3://bucket/x", "obstore"), ("etcd://host:2379/x", "etcd3gw")]
)
def test_a_missing_package_is_named_with_its_extra(
    url: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=rf"{package}: pip install 'rocketray\[register\]'"):
        open_register(url)
