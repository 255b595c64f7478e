"""Producers: batching messages, and handing the batches to shards."""
