from __future__ import annotations

import pytest

from rocketray.errors import InvalidNameError
from rocketray.filters.filter_name import FilterName


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("large", FilterName("large")),
        ("large@1", FilterName("large", 1)),
        ("Large-2_x@120", FilterName("Large-2_x", 120)),
        ("x" * 64 + "@999999999", FilterName("x" * 64, 999_999_999)),
    ],
)
def test_a_name_is_read_as_it_is_written(text: str, name: FilterName) -> None:
    assert FilterName.parse(text) == name
    assert str(name) == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "1 to 64 characters"),
        ("@1", "1 to 64 characters"),
        ("large ones", "' '"),
        ("größe", "'ß'"),
        ("x" * 65, "at most 64"),
        ("large@", "'' is not a version"),
        ("large@0", "'0' is not a version"),
        ("large@01", "'01' is not a version"),
        ("large@1000000000", "is not a version"),
        ("large@-1", "'-1' is not a version"),
        ("large@1@2", "'1@2' is not a version"),
        ("large@²", "'²' is not a version"),
    ],
)
def test_another_text_is_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidNameError, match=said):
        FilterName.parse(text)


def test_a_version_is_a_number_from_1() -> None:
    for version in (0, True, 1.0, 1 << 40):
        with pytest.raises(InvalidNameError, match="has no version"):
            FilterName("large", version)  # type: ignore[arg-type]


def test_a_version_in_the_name_is_told_how_it_is_given() -> None:
    with pytest.raises(InvalidNameError, match=r"FilterName\('large', 2\); FilterName.parse"):
        FilterName("large@2")


def test_a_version_is_of_its_filter_alone() -> None:
    name = FilterName("large")
    assert name.is_of("large@3")
    assert not name.is_of("large-2@3")
    assert not name.is_of("")
