"""The journal of a consumer group: the history of its offsets and filters."""
