"""Import from RocketMQ broker directories: their settings and their messages."""
