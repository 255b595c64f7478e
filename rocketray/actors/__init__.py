"""A node's processes: shards, filter actor, consumers, coordinator; and what they share."""
