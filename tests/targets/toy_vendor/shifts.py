"""What the other modules share: the shift of a scale, and the longest that the chip has."""

import numpy as np

LONGEST = 7


def shift_of(scale):
    return int(-np.log2(np.asarray(scale).max()))
