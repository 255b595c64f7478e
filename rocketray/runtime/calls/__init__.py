"""Calls between a node's processes: endpoints with typed interfaces, and their transports."""
