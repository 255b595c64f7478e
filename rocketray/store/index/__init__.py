"""The key index: index files and searching them."""
