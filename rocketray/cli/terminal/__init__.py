"""What a command prints: tables, lines, quantities, and signals that end it."""
