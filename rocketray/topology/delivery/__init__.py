"""The path of a batch through an app: feed, handlers, offsets, failures and retries."""
