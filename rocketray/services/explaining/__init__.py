"""Explanations: why a message was or was not delivered to a group."""
