"""OPEN AI LAB's Tengine with uint8."""
