"""Benchmarks for users, one question per file; each report includes the machine's own limits."""
