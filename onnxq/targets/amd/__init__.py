"""AMD: the DPUs of Vitis AI and the NPUs of Ryzen AI, what positions their shifts allow, and how they compute."""
