"""The access of system services to the node's own topics, and their links to all others."""
