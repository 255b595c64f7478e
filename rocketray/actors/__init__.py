"""The processes: shards, filters, consumers and the coordinator as Ray actors, and what they share."""
