"""What the console asks of a node: connections, samples of the last hour, processes."""
