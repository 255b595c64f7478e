"""Nodes, stores, apps and clusters that tests use, in this process or in others."""
