"""Between the plan and the files: a model calibrated, improved, written and checked."""
