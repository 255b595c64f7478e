"""Tests of what tests stand on."""
