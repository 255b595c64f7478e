"""Numba kernels, each with its plain twin; nothing of ours stands below it but errors and hashing."""
