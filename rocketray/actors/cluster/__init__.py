"""A node of the cluster: starting it, its coordinator, and the Ray shells of its actors."""
