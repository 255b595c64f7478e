"""Failed messages: retry and dead-letter records, and their delivery to topics."""
