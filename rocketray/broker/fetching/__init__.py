"""The fetch service of a disk, over Arrow Flight; and ranges of a queue as Arrow batches."""
