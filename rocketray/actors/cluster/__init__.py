"""The node: start and stop, the coordinator's state, and the Ray actors around the plain parts."""
