"""Benchmarks for developers, one question per file: the docstring asks, ``run`` returns the rows.

``make bench BENCH_ARGS=NAME`` runs one of them. What they share is in ``rocketray_bench``, with the
questions that users ask of their own machines.
"""
