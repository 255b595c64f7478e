"""Members and producers on other machines: long polls, and their proxies on the node."""
