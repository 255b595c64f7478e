"""Commands for store directories."""
