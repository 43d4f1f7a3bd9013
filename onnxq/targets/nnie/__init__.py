"""HiSilicon's NNIE."""
