"""Commands for nodes, topics and apps."""
