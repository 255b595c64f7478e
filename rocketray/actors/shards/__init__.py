"""A shard: its writer, its appends, compaction, and what its owner answers."""
