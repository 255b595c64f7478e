"""The Ray actors, the node that keeps them, and clients of both."""
