"""Deployment: app instances, and an app's sinks, as named Ray actors."""
