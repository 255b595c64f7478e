"""Commands for consumer groups and dead letters."""
