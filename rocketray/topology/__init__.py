"""The application API: apps, agents, topics, sinks, and their deployment."""
