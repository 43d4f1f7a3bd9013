"""Which layers can have how many bits: sensitivity, mixed precision under a budget, layers put back."""
