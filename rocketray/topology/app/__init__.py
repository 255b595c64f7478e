"""The app and its agents, streams and settings."""
