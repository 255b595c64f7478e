"""Shared memory between processes: rings, and control pages with the watermark."""
