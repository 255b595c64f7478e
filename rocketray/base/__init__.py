"""The ground under every suite: names, marks, delays, hashes, settings, forms of files."""
