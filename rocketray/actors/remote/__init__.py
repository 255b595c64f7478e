"""Messages for consumers on other Ray nodes: long polls to fetch sessions at the gateway."""
