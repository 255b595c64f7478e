"""The CommitLog: appending records to memory-mapped files."""
