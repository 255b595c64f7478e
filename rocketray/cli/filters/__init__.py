"""Commands on filters and explanations."""
