"""Runs improvements after calibration, judges each on samples that it was not fitted to, keeps what helps."""
