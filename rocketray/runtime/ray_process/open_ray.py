"""What is said of a Ray that asks for no token; without Ray, for the doctor and its checks."""

from __future__ import annotations

OPEN_RAY = (
    "it asks for no token, so any program that can reach its ports can run code as the node's user"
)
CLOSE_RAY = (
    "if ray start began it: make a token (ray get-auth-token --generate), copy it to all machines, "
    "and start Ray there again, and then nodes and programs, with RAY_AUTH_MODE=token; if the node "
    "began it: unset RAY_AUTH_MODE, and start the node again"
)
"""What to do, for both kinds of Ray: RAY_AUTH_MODE is unset for the one, and set for the other."""
OPEN_RAY_PROBLEM = f"Ray: {OPEN_RAY}; {CLOSE_RAY}"
