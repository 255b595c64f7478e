"""Implementations of Faust's transport interface for rocketray apps."""
