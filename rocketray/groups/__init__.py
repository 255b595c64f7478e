"""Consumer groups in the coordinator: members, hand-over of queues, leases, offsets, filters."""
