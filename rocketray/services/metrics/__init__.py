"""Metrics of a node for Prometheus: what is read of it, their names, and the endpoint."""
