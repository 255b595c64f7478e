"""The CommitLog: appending records to mapped files."""
