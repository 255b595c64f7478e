"""Spark in tests: sessions that start quickly, and queries that are driven or killed."""
