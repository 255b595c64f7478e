"""What each of these tests gets."""

from support.nodes.app_node import closing, node, patient_stops

__all__ = ["closing", "node", "patient_stops"]
