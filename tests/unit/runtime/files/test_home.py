"""A data directory is known by its UUID: actors find the right one, or make nothing and say why."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from rocketray.actors.cluster.cluster_state import Problems
from rocketray.actors.cluster.coordinator_actor import CoordinatorActor
from rocketray.actors.cluster.filter_actor import FilterActor
from rocketray.actors.cluster.shard_process_actor import ShardProcessActor
from rocketray.broker.filtering.filter_rules import FilterRules
from rocketray.errors import DataDirectoryError, StoreError, StoreLockedError
from rocketray.runtime.files.home import Home, identity_of, settle_identity
from rocketray.runtime.files.node_lock import lock_node
from rocketray.runtime.files.paths import identity_file

pytestmark = pytest.mark.proves(
    "durability",
    "A damaged file of the node's state is rebuilt from its copy, and each other row of that table",
)


def home_of(data: Path) -> Home:
    return Home(str(data), settle_identity(data), "the-first")


def test_a_directory_keeps_the_uuid_that_its_first_start_gave_it(tmp_path: Path) -> None:
    old = tmp_path / "old"
    (old / "config").mkdir(parents=True)  # as one from before directories had a UUID
    first = settle_identity(old)
    assert settle_identity(old) == first == str(UUID(first))
    assert settle_identity(tmp_path / "new") != first
    assert json.loads(identity_file(old).read_bytes()) == {"version": 1, "uuid": first}


def test_the_identity_is_asked_for_before_the_first_start_and_beside_a_node(tmp_path: Path) -> None:
    data = tmp_path / "data"
    found = identity_of(data)
    lock = lock_node(data)  # the first asker gave it back
    try:
        assert settle_identity(data) == identity_of(data) == found
        identity_file(data).unlink()  # as at the first start, before the node has written it
        with pytest.raises(StoreLockedError):
            identity_of(data)
    finally:
        os.close(lock)
    assert not identity_file(data).exists()


def test_the_right_directory_is_found_and_another_is_refused(tmp_path: Path) -> None:
    home, other = home_of(tmp_path / "a"), home_of(tmp_path / "b")
    assert home.directory() == tmp_path / "a"
    with pytest.raises(DataDirectoryError) as raised:
        replace(home, data=other.data).directory()
    text = str(raised.value)
    for part in (str(tmp_path / "b"), socket.gethostname(), home.uuid, other.uuid, "the-first"):
        assert part in text
    assert "create" not in text


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize(
    ("actor", "arguments"),
    [
        (CoordinatorActor, (None,)),
        (FilterActor, (FilterRules(),)),
        (ShardProcessActor, ("Trade:0", {}, 0)),
    ],
)
def test_no_actor_makes_anything_where_its_directory_is_not(
    tmp_path: Path, actor: type, arguments: tuple[Any, ...], is_there: bool
) -> None:
    """As on another machine, or before the disk is mounted."""
    data = tmp_path / "data"
    home = Home(str(data), "0b2e9d0e-9a35-4d1f-8d3f-6c7f0f1f9a11", "the-first")
    if is_there:
        data.mkdir()
    with pytest.raises(DataDirectoryError, match="there is no data directory; mount the right"):
        actor(home, *arguments)
    assert list(tmp_path.rglob("*")) == ([data] if is_there else [])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (
            '{"version": 2, "uuid": "x"}',
            "directory.json: its version is 2, .* use the release that wrote it, or a newer",
        ),
        ('{"uuid": "x"}', "damaged .*badly formed.*, and there is no "),
        ('{"version": "1", "uuid": "x"}', "damaged .*version is '1'"),
        ('{"version": 1, "uuid": "x"}', "damaged .*badly formed"),
        ('{"version": 1}', r"damaged \(KeyError\('uuid'\)\)"),
        ("[]", "no JSON object"),
    ],
)
def test_an_identity_that_is_not_ours_is_left_as_it_is(
    tmp_path: Path, content: str, reason: str
) -> None:
    identity_file(tmp_path).write_text(content)
    for find in (settle_identity, identity_of):
        with pytest.raises(StoreError, match=reason):
            find(tmp_path)
    assert identity_file(tmp_path).read_text() == content


@pytest.mark.parametrize("damage", ["", "{", '{"version": 1, "uuid": "x"}'])
def test_a_damaged_identity_is_fixed_from_its_copy_and_told(tmp_path: Path, damage: str) -> None:
    home = home_of(tmp_path)
    identity_file(tmp_path).write_text(damage)
    assert home.directory() == tmp_path
    assert settle_identity(tmp_path) == home.uuid
    assert json.loads(identity_file(tmp_path).read_bytes())["uuid"] == home.uuid
    [line] = Problems(tmp_path).lines()
    assert line.startswith(f"{identity_file(tmp_path)}: it was damaged")
