"""Formats of files: how each is taken apart, what can be done to its parts, and how it is put together again."""
