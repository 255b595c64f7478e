"""The position of a message that an app sent."""

from __future__ import annotations

from faust.types.tuples import RecordMetadata

__all__ = ["StoredMetadata"]


class StoredMetadata(RecordMetadata):  # type: ignore[misc]  # Faust's types are not followed
    """The position of a stored message and, for a delayed one, its recall handle."""

    recall_handle: str | None = None
