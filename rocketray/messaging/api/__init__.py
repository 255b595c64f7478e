"""The calls of a node that all its clients share, whatever the transport."""
