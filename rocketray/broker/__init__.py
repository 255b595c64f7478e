"""The broker: what owns queues, filters them, and reads and copies them; for each disk."""
