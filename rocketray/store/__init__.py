"""RocketMQ's files: commit log, consume queues, key index; independent of Ray, Faust and Spark."""
