"""Intel's OpenVINO."""
