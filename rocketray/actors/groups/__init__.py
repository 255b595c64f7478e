"""Consumer groups in the coordinator: membership, assignment, leases, offsets, subscriptions."""
