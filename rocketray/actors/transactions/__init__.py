"""Transactional messages: half messages, checks and decisions."""
