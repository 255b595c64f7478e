"""Files of a store: memory-mapped files, locks, the checkpoint."""
