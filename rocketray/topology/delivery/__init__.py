"""Delivery inside an app: flow control, handlers, offsets, retries, and outgoing messages."""
