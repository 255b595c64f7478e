"""Disks of a cluster: the register of those that joined, and the agent on each."""
