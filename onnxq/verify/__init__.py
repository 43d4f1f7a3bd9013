"""Did it work: the checks of an emitted model, its target's lint, and the comparison with the float model."""
