"""Processes of this machine: identity and liveness, clocks, signal handlers, periodic tasks."""
