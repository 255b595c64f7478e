"""Topics: the catalog, their files, and reading queues by offset."""
