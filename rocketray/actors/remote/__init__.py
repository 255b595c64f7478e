"""Messages for consumers on other Ray nodes: fetch sessions at the gateway, and fetched streams."""
