"""Commands on consumer groups and dead letters."""
