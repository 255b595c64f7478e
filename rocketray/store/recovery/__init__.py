"""Opening a store: recovery after a crash, replay, verification."""
