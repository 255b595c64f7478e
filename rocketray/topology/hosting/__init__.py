"""Apps that are hosted as named actors."""
