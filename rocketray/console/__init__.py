"""The console: a web server with pages on a node, its live tail, and few writes."""
