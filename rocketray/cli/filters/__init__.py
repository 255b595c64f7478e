"""Commands for filters and explanations."""
