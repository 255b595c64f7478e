"""Administration: imports, dead letters, moving a group's offsets, changing its filter."""
