"""System topics: the host of their shards and its links to the other topics."""
