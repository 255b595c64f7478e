"""Subscriptions: tags, SQL92, Bloom filter bits, predicates; pure, independent of the store."""
