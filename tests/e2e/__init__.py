"""Whole servers with the real engine."""
