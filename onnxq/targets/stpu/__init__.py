"""STPU."""
