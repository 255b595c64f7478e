"""The run itself: what it tests, how long it waits, what it shares, counts and judges."""
