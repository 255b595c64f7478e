"""The journal of a consumer group: what happened to its offsets and filters."""
