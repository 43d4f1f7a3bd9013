"""What Vitis AI calls the methods of observers."""

from __future__ import annotations

from onnxq.observers.aliases import ALIASES, Alias

ALIASES.add("No_OF", Alias("no_overflow"))
ALIASES.add("Min_MSE", Alias("min_mse"))
ALIASES.add("Min_KL", Alias("min_kl"))
ALIASES.add("Percentile", Alias("percentile"))
