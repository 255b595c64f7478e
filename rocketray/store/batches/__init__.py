"""Batches of messages as columns, packed to records."""
