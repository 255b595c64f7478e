from __future__ import annotations

from rocketray.groups.group_offsets import GroupOffsets


def test_a_group_begins_once_and_moves_on() -> None:
    offsets = GroupOffsets()
    assert (offsets.get("g", "T", 0), offsets.start("g", "T", 0)) == (-1, -1)
    offsets.begin("g", "T", 0, 5)
    offsets.commit("g", "T", 0, 5)
    offsets.begin("g", "T", 0, 9)
    offsets.commit("g", "T", 0, 12)
    assert (offsets.get("g", "T", 0), offsets.start("g", "T", 0)) == (12, 5)
    assert offsets.changed


def test_both_tables_survive_as_json_whatever_is_in_the_names() -> None:
    before = GroupOffsets()
    before.begin("g", "T", 1, 0)
    before.commit("g", "%RETRY%g", 0, 7)
    after = GroupOffsets()
    after.load(before.to_json())
    assert after.to_json() == before.to_json()
    assert after.to_json()["offsetTable"] == {"T@g": {"1": 0}, "%RETRY%g@g": {"0": 7}}


def test_what_rocketmq_wrote_has_no_starts() -> None:
    offsets = GroupOffsets()
    offsets.load({"offsetTable": {"T@g": {"0": 3}}})
    assert (offsets.get("g", "T", 0), offsets.start("g", "T", 0)) == (3, -1)


def test_what_is_dropped_is_gone() -> None:
    offsets = GroupOffsets()
    offsets.begin("g", "T", 0, 1)
    offsets.commit("h", "T", 0, 2)
    offsets.drop(lambda key: key[1] == "T")
    assert offsets.to_json() == {"offsetTable": {}, "startTable": {}}


def test_what_is_said_again_needs_no_saving() -> None:
    offsets = GroupOffsets()
    offsets.begin("g", "T", 0, 5)
    offsets.commit("g", "T", 0, 7)
    offsets.changed = False
    offsets.begin("g", "T", 0, 5)
    offsets.commit("g", "T", 0, 7)
    assert not offsets.changed


def test_where_a_group_began_is_its_offset_until_it_commits() -> None:
    offsets = GroupOffsets()
    offsets.begin("g", "T", 0, 5)
    assert offsets.get("g", "T", 0) == 5
    offsets.commit("g", "T", 0, 9)
    offsets.begin("g", "T", 0, 5)
    assert offsets.get("g", "T", 0) == 9
