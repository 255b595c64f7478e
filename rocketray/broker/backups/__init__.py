"""Backups: a consistent copy of a data directory, also of a running node, and its restoration."""
