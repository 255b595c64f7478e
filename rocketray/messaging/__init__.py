"""Messaging: sending and reading messages, on the machine of a queue and from others."""
