"""RocketMQ's bytes: records, flags, compression, message ids."""
