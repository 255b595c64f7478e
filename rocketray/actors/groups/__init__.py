"""Consumer groups as the coordinator keeps them: members, assignment, offsets, subscriptions."""
