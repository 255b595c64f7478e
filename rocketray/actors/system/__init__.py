"""System services: the node's periodic work on system topics, and its links to other topics."""
