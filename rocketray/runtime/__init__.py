"""What a node's processes run on: clocks, calls, files, shared memory, their Ray, the register."""
