"""The filter actor: filter streams for group members, predicates, filter bitmaps, and lag."""
