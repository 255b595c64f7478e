"""What has to be true of random histories: models, oracles, and how they are driven."""
