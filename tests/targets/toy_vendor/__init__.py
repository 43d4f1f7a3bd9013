"""A vendor as a user writes one: everything about the chip is in this folder, and `-b toy_vendor/` loads it."""
