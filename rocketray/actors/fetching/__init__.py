"""Ranges of a queue as Arrow batches: from the files, or from another disk by Arrow Flight."""
