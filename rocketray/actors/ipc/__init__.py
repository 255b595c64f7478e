"""Shared memory between processes: rings, and the control page with the watermark."""
