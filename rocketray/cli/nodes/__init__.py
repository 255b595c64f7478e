"""Commands on nodes, topics and apps."""
