"""What somebody may have meant who mistyped a name."""

from __future__ import annotations

import pytest

from rocketray.base.meant import meant, refuse_unknown
from rocketray.errors import ConfigError


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ("amuont", ["amount"]),
        ("AMOUNT", ["amount"]),
        (" amount ", ["amount"]),
        ("pay", ["Pay"]),
        ("weather", []),
        ("", []),
    ],
)
def test_the_name_that_is_most_alike_is_meant(wanted: str, names: list[str]) -> None:
    assert meant(wanted, ["amount", "account", "Pay"]) == names


def test_some_are_named_and_the_most_alike_first() -> None:
    assert meant("amount", ["account", "amounts"], most=3) == ["amounts", "account"]
    assert meant("amount", ["account", "amounts"], most=3, cutoff=0.9) == ["amounts"]


def test_an_argument_that_is_not_known_is_refused_with_what_may_be_meant() -> None:
    refuse_unknown("a member has no option", ["start"], ["start"], "there is start")
    with pytest.raises(ConfigError, match=r"^no option stat=; did you mean start=\?$"):
        refuse_unknown("no option", ["stat"], ["start"], "there is start")
    with pytest.raises(ConfigError, match=r"^no option colour=; there is start$"):
        refuse_unknown("no option", ["start", "colour"], ["start"], "there is start")
