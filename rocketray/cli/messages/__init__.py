"""Commands that send, read, query and recall messages."""
