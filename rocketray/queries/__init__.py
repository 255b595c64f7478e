"""Queries: topics as tables of Spark and datasets of Ray Data, read and written."""
