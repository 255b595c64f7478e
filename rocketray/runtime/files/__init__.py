"""A node's data directory: file layout, state files, and locks."""
