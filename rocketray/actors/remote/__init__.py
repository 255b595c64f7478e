"""Consumers on other Ray nodes: long polls to the gateway, and proxy members on the node."""
