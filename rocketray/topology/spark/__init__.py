"""Spark Structured Streaming; the only package that imports pyspark."""
