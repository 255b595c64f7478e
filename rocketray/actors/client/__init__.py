"""The way into a node: finding it, connecting, and calling its actors."""
