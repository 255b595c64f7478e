"""Delayed messages: the schedule, what waits, and what was delivered or recalled."""
