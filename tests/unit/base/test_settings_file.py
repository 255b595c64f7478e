"""The settings file: where it is found, what it may say, and what takes precedence over it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketray.base.cluster import CLUSTER_VARIABLE, Cluster, chosen_node
from rocketray.base.data_directory import DATA_VARIABLE, DEFAULT_DATA, data_directory
from rocketray.base.settings_file import CONFIG_VARIABLE, SettingsFile, read_settings
from rocketray.errors import ConfigError


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "rocketray.toml"


def test_without_a_file_nothing_is_set(file: Path) -> None:
    assert not file.exists()
    assert read_settings({}) == SettingsFile()
    assert data_directory(None, {}) == DEFAULT_DATA


def test_the_file_of_the_directory_or_of_the_variable(file: Path, tmp_path: Path) -> None:
    file.write_text('data = "here"\n')
    other = tmp_path / "etc" / "other.toml"
    other.parent.mkdir()
    other.write_text('data = "there"\nray_address = "a:1"\n[start]\nack = "disk"\n')
    assert read_settings({}) == SettingsFile(file, tmp_path / "here")
    found = read_settings({CONFIG_VARIABLE: str(other)})
    assert found.data == tmp_path / "etc" / "there", "relative to the file"
    assert (found.ray_address, found.commands) == ("a:1", {"start": {"ack": "disk"}})


def test_a_changed_file_is_read_again(file: Path) -> None:
    file.write_text('data = "/one"\n')
    assert read_settings({}).data == Path("/one")
    file.write_text('data = "/other"\n')
    assert read_settings({}).data == Path("/other")


def test_options_and_the_environment_take_precedence(file: Path) -> None:
    file.write_text('data = "/file"\n')
    assert data_directory(None, {}) == Path("/file")
    assert data_directory(None, {DATA_VARIABLE: "/variable"}) == Path("/variable")
    assert data_directory("/option", {DATA_VARIABLE: "/variable"}) == Path("/option")
    file.write_text('data = "/file"\ncluster = "trade"\nray-address = "head:6379"\n')
    assert chosen_node(environ={}) == Cluster("trade", "head:6379")
    assert chosen_node(environ={CLUSTER_VARIABLE: "other"}) == Cluster("other")
    assert chosen_node(environ={DATA_VARIABLE: "/variable"}) == Path("/variable")
    assert chosen_node("/option", environ={}) == Path("/option")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("data = ", "rocketray.toml: Invalid value"),
        ('dta = "/a"', "unknown setting 'dta' at the top; did you mean data?"),
        ("x = 1", "unknown setting 'x' at the top; there are data, cluster, ray-address,"),
        ("data = 5", "data is 5; give a text in quotes"),
        ('cluster = ""', "cluster is ''; give a text in quotes"),
        ("# " + "x" * 70_000, "at most 65536"),
    ],
)
def test_a_wrong_file_is_explained(file: Path, text: str, says: str) -> None:
    file.write_text(text)
    with pytest.raises(ConfigError) as raised:
        read_settings({})
    assert says in str(raised.value)
    assert str(file) in str(raised.value)


def test_a_file_that_is_no_text_is_explained(file: Path) -> None:
    file.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"rocketray\.toml: "):
        read_settings({})


@pytest.mark.parametrize(("given", "says"), [("", "is empty"), ("no/such", "No such file")])
def test_the_variable_has_to_name_a_file(file: Path, given: str, says: str) -> None:
    assert not file.exists()
    with pytest.raises(ConfigError, match=says):
        read_settings({CONFIG_VARIABLE: given})
