"""Topics: the catalog, their files, and reading their queues by position."""
