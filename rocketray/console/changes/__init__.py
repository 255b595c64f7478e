"""Changes through the console: their forms, the jobs that carry them out, and their log."""
