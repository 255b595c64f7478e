"""Delayed messages: the schedule, what waits, and what is done."""
