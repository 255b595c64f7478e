"""Consumers (group members): assigned queues, start offsets, and a stream for each queue."""
