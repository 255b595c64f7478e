"""Transactional messages: half messages, transaction checks, commits and rollbacks."""
