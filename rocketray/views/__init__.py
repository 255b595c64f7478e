"""What a node shows of itself, as JSON records: for commands and for the console."""
