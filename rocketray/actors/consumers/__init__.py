"""Members of a group: the queues that they own, and their streams of messages."""
