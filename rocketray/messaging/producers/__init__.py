"""Producers: batching, queue selection, sending to shards, and transactional sends."""
