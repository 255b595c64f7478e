"""Ranges of a queue as Arrow batches: read from the files."""
