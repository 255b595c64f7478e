"""Logs of a node's processes and of apps: their lines, their files, and how both are found."""
