"""Where a message that an app sent is stored."""

from __future__ import annotations

from faust.types.tuples import RecordMetadata

__all__ = ["StoredMetadata"]


class StoredMetadata(RecordMetadata):  # type: ignore[misc]  # Faust's types are not followed
    """Where a message is stored, and for a delayed one the handle by which it can be recalled."""

    recall_handle: str | None = None
