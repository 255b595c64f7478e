"""The check of a machine and a data directory: ``rocketray doctor``."""
