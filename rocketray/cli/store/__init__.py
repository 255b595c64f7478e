"""Commands on store directories."""
