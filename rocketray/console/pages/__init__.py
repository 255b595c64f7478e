"""Pages of the console: what each shows, the live tail, and how they are rendered."""
