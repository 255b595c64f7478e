"""A node's data directory: where files lie, the small ones that hold its state, and its locks."""
