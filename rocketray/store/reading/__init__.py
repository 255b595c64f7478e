"""Reading a store: records as columns, pulls, lookups, and readers beside the writer."""
