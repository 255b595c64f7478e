"""The register: the coordinator's state on no disk of its own, as keys that are created once."""
