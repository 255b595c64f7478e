"""The application API: apps, agents, streams, topics, tables, and what they declare."""
