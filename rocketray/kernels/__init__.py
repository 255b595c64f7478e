"""Numba kernels: compiled loops over buffers and columns; they import shared base modules only.

Importing a module of this package compiles its kernels, or loads them from the cache.
"""
