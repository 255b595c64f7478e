"""Programs that tests start in processes of their own, many of them to be killed."""
