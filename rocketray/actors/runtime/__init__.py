"""Processes of this machine: which live, their clock, signals and periodic tasks."""
