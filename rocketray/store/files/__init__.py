"""Files of a store: mapped files, locks, the checkpoint."""
