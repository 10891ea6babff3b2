"""The function that the demo runs: a nearest-neighbour classifier in the array API.

Nothing here knows which array library, compiler or policy there is.
"""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace, device

import xpolicy

__all__ = ["classify"]


@xpolicy.compile(name="demo.classify", static_argnames=("k",))
def classify(queries: Any, samples: Any, one_hot: Any, *, k: int = 3) -> Any:
    """Return the class of each query: what most of its `k` nearest samples are.

    The distance is the city-block one. Of two samples at the same distance the earlier is the
    nearer; of two classes with as many votes, the one that has the nearest sample wins. So the
    answer is one and the same whatever the order of summation: see Notes.

    Parameters
    ----------
    queries : array, shape (n_queries, n_features)
        What to classify. Whole numbers, as a floating dtype.
    samples : array, shape (n_samples, n_features)
        What is known.
    one_hot : array, shape (n_samples, n_classes)
        1 in the column of each sample's class, else 0.
    k : int
        How many neighbours vote. Static: the loop over it is unrolled by a compiler.

    Returns
    -------
    array, shape (n_queries,)
        The index of the class.

    Notes
    -----
    Every number here is whole. For the digits (64 pixels of 0 to 16, 1500 samples) the largest is
    ``64 * 16 * 1500 + 1499``, about 1.5 million, and float32 is exact up to 2**24, about 16.8
    million. A compiler may add in any order, in float32 or float64, and not change one prediction.

    Undecorated, ``queries - samples`` is an array of n_queries * n_samples * n_features numbers in
    memory, three times over. A compiler that fuses the subtraction, the absolute value and the sum
    never makes it.
    """
    xp = array_namespace(queries, samples, one_hot)
    where = device(samples)
    n_samples = samples.shape[0]

    distances = xp.sum(xp.abs(queries[:, None, :] - samples[None, :, :]), axis=2)
    # The sample's index makes every rank in a row different, so that each minimum is one sample.
    ranks = distances * n_samples + xp.arange(n_samples, dtype=distances.dtype, device=where)
    taken = xp.asarray(xp.inf, dtype=distances.dtype, device=where)

    shape = (queries.shape[0], one_hot.shape[1])
    votes = xp.zeros(shape, dtype=distances.dtype, device=where)
    for neighbour in range(k):
        nearest = ranks == xp.min(ranks, axis=1, keepdims=True)
        # One vote, and a different power of two below one vote for each neighbour: the sums of two
        # classes can't be equal, and the powers together never make up a whole vote.
        vote = 2**k + 2 ** (k - 1 - neighbour)
        votes = votes + vote * (xp.astype(nearest, distances.dtype) @ one_hot)
        ranks = xp.where(nearest, taken, ranks)
    return xp.argmax(votes, axis=1)
