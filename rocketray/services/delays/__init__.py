"""Delayed messages: the schedule, the messages that wait, and those delivered or recalled."""
