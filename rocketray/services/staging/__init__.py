"""Staged batches: fragments that no consumer reads, one decision, and messages in their topics."""
