"""Deployment: app instances as named Ray actors."""
