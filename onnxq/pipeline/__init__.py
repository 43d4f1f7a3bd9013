"""Between parameters and files: a calibrated model written and checked, and the report of it."""
