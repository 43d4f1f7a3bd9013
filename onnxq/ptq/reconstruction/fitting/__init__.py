"""The part of reconstruction that needs torch: streams of activations, nets of segments, the fitting itself."""
