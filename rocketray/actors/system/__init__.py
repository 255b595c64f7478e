"""The shard host: one process for the shards of system topics, and its links to other topics."""
