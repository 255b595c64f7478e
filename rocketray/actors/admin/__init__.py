"""Commands on data: import, dead letters, seeking, and moving groups."""
