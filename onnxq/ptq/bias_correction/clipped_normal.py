"""The mean of a normal distribution that is cut off at both ends: what arrives behind BatchNormalization and ReLU.

Nagel, van Baalen, Blankevoort, Welling: "Data-Free Quantization Through Weight Equalization and Bias Correction", 2019,
appendix. A BatchNormalization makes channels with mean beta and standard deviation |gamma|. For x ~ N(mean, deviation)
and a = (low - mean) / deviation, b = (high - mean) / deviation, with phi and Phi the normal density and distribution:

    E[clip(x, low, high)] = low Phi(a) + high (1 - Phi(b)) + mean (Phi(b) - Phi(a)) + deviation (phi(a) - phi(b))

With low = 0 and no upper end this is E[ReLU(x)] = deviation phi(mean / deviation) + mean Phi(mean / deviation).
"""

from __future__ import annotations

import math

import numpy as np

_erf = np.vectorize(math.erf, otypes=[np.float64])


def clipped_mean(mean: np.ndarray, deviation: np.ndarray, low: float = -math.inf, high: float = math.inf) -> np.ndarray:
    """E[clip(x, low, high)] for each normal distribution; a deviation of zero is a number that does not vary."""
    mean, deviation = np.asarray(mean, np.float64), np.abs(np.asarray(deviation, np.float64))
    varying = np.where(deviation > 0, deviation, 1.0)
    below, at_low = _end((low - mean) / varying)
    upto, at_high = _end((high - mean) / varying)
    inside = mean * (upto - below) + deviation * (at_low - at_high)
    ends = (low * below if math.isfinite(low) else 0.0) + (high * (1 - upto) if math.isfinite(high) else 0.0)
    return np.asarray(np.where(deviation > 0, inside + ends, np.clip(mean, low, high)))


def _end(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Phi(x) and phi(x)."""
    return 0.5 * (1 + _erf(x / math.sqrt(2))), np.exp(-0.5 * np.square(x)) / math.sqrt(2 * math.pi)
