"""Shared command arguments: options, filters, messages, and the node or store to use."""
