"""Messages for consumers on other machines: long polls to fetch sessions at the gateway."""
