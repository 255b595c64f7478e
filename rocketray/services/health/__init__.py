"""What is wrong with a node: one list, for the console, ``rocketray status`` and metrics."""
