"""The key index: index files and lookups by key hash."""
