"""RocketMQ's files: commit log, consume queues and key index; knows nothing of Ray, Faust or Spark."""
