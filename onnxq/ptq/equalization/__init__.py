"""Float to float, before calibration: other weights with which the model computes the same and quantizes better."""
