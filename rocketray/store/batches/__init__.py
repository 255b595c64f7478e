"""Batches of messages as columns, encoded to records."""
