"""RocketMQ and Kafka themselves, and what RocketMQ's own classes answered."""
