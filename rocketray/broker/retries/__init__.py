"""Failed messages: number of attempts, retry and dead-letter records, their delivery to topics."""
