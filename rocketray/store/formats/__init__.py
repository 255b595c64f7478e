"""RocketMQ's binary formats: records, flags, compression, message ids."""
