"""Benchmarks, one question a file; every report stands beside the machine's own ceilings."""
