"""ConsumeQueues: entries of 20 bytes, and their extension units."""
