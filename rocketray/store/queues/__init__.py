"""ConsumeQueues: entries of 20 bytes, and ConsumeQueueExt units."""
