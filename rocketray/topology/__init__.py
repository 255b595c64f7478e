"""What users write: apps, agents, topics, sinks, and how they are deployed."""
