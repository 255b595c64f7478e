"""The filter actor: scanning shards for the members of groups, predicates, and filter bitmaps."""
