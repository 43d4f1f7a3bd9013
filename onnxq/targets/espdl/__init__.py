"""Espressif's ESP-DL."""
