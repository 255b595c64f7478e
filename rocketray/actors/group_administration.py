"""What is asked of a cluster's groups by hand, through the coordinator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

from rocketray.errors import StreamError

from .groups import GroupRegistry

__all__ = ["GroupAdministration", "GroupQuestion"]

GroupQuestion = Literal["move_offsets", "moves_left"]
_QUESTIONS = frozenset(get_args(GroupQuestion))


class GroupAdministration:
    """Changes to groups; ``now_ms`` is as in :class:`GroupRegistry`."""

    def __init__(self, registry: GroupRegistry) -> None:
        self._registry = registry

    def answer(self, question: GroupQuestion, now_ms: int, *arguments: Any) -> Any:
        """What the method of that name says."""
        assert question in _QUESTIONS
        return getattr(self, question)(now_ms, *arguments)

    def move_offsets(self, now_ms: int, group: str, topic: str, targets: Mapping[int, int]) -> str:
        """Have the group go on at other offsets; see offset_moves.py.

        Answers the name of the order. Raises :class:`StreamError` for an unknown group, or a topic
        that it does not read.
        """
        if topic not in self._registry.topics_of(group):
            raise StreamError(
                f"group {group!r} does not read topic {topic!r}; see: rocketray groups list"
            )
        name = self._registry.moves.order(group, topic, targets)
        self._registry.carry_out_moves(group, topic, now_ms)
        return name

    def moves_left(self, now_ms: int, group: str, topic: str, name: str) -> set[int]:
        """The queues of an order that their owners did not give up yet."""
        self._registry.carry_out_moves(group, topic, now_ms)
        return self._registry.moves.left(name)
