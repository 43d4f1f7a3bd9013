"""Second moments of few rows, with what they cannot know taken back.

d columns have d (d + 1) / 2 covariances. Estimated from n rows that are not many times d, most of what they say about
columns together is chance, and a rounding that makes use of it fits the samples and nothing else: on a sentence model
with 24 sentences, the outputs were right to 28 dB on these and to 15 dB on others. Covariances are therefore made
smaller by the factor

    n / (n + d / 2)

while variances and means, which few rows know well, stay: the estimate lies between the one of the samples and one
without any correlation. (Ledoit & Wolf, "A well-conditioned estimator for large-dimensional covariance matrices", 2004;
the share is a rule of thumb in the place of their estimate, which takes rows to be independent, and positions of one
sample are not.) Many rows are believed: with 2 d rows, the fewest that are looked at where there are as many, a fifth
is taken back, with 8 d rows a seventeenth.
"""

from __future__ import annotations

import numpy as np

PRIOR = 0.5
"""Rows for each column that count for no correlation."""


def shrunk(moments: np.ndarray, left: np.ndarray, right: np.ndarray, rows: int) -> np.ndarray:
    """E[x yT] of rows, [groups, columns, columns], with smaller covariances; `left`, `right` are E[x], E[y]."""
    columns = moments.shape[-1]
    kept = rows / (rows + PRIOR * columns)
    means = left[:, :, None] * right[:, None, :]
    result: np.ndarray = moments - means
    result *= kept
    result += means
    diagonal = np.arange(columns)
    result[:, diagonal, diagonal] = moments[:, diagonal, diagonal]
    return result
