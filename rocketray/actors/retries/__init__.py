"""Failed messages: retry records, dead letters, and the deliveries that carry them."""
