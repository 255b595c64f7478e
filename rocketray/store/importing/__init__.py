"""Directories of RocketMQ brokers: how they are set up, and their messages."""
