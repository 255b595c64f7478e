"""The simulator: a whole node in one process, whose machine loses power, kills and lies by a seed.

``make sim`` runs it. See docs/explanation/proofs.md.
"""
