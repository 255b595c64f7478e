"""Messages for readers on other machines: fetch sessions of members, and steps of tails."""
