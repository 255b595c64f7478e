"""The node's Ray: starting or joining it, its access token, and detecting its loss."""
