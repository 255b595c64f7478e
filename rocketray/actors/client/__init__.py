"""Clients of a node: finding it, connecting to it, and calling its actors."""
