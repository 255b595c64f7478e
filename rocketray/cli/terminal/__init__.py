"""Terminal output: tables, lines, quantities; and signals that end a command."""
