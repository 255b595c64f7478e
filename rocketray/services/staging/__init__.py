"""Staged batches: halves that no consumer reads, one decision, and the messages in their topics."""
