"""Opening a store: crash recovery, replay, verification, and upgrades."""
