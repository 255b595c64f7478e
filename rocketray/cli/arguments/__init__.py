"""What a command takes: options, filters, messages, and the node or store that it works on."""
