"""Services on messaging: delays, transactions, staged batches, administration, explanations."""
