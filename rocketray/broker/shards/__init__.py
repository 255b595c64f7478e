"""A shard: its single writer, appends, compaction; and processes of one to many shards."""
