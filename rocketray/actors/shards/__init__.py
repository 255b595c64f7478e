"""A shard: its single writer, appends, deduplication of repeated batches, and compaction."""
