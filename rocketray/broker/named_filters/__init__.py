"""Named filters of topics: their versions, and which of them a member of a group gets."""
