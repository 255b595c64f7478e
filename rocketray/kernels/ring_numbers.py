"""The numbers of a ring that kernels and Python share; this module imports none of the others."""

from __future__ import annotations

# The first statuses of a slot; runtime/ipc/acknowledgement.py has the others.
SLOT_PENDING, SLOT_OK = 0, 1
