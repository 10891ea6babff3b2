"""The data: scikit-learn's handwritten digits, as arrays of any of the demo's libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["N_SAMPLES", "Digits", "load", "read", "save", "to_namespace"]

N_SAMPLES = 1500
"""The first 1500 of the 1797 images are the known samples; the other 297 are classified."""


class Digits(NamedTuple):
    """The images and classes, as float32 arrays of one library; `truth` stays with NumPy."""

    queries: Any
    samples: Any
    one_hot: Any
    truth: np.ndarray[Any, Any]


def load() -> Digits:
    """Return the 8 by 8 images (pixels 0 to 16), split in the order in which they were collected.

    The later images are by other writers than the earlier ones, so this split is the harder one
    (a shuffled split gives about 0.98).
    """
    from sklearn.datasets import load_digits  # type: ignore[import-untyped]  # it ships no types

    images, classes = load_digits(return_X_y=True)
    images = images.astype(np.float32)
    one_hot = np.eye(10, dtype=np.float32)[classes]
    return Digits(images[N_SAMPLES:], images[:N_SAMPLES], one_hot[:N_SAMPLES], classes[N_SAMPLES:])


def save(digits: Digits, file: Path) -> None:
    """Write NumPy arrays to a file (``.npz``).

    For the workers: importing scikit-learn takes each a second or two, and memory that is not the
    function's.
    """
    np.savez(file, **digits._asdict())


def read(file: Path) -> Digits:
    """Return what `save` wrote."""
    with np.load(file, allow_pickle=False) as arrays:
        return Digits(**{name: arrays[name] for name in Digits._fields})


def to_namespace(digits: Digits, namespace: str) -> Digits:
    """Return the same digits as arrays of `namespace` on the CPU."""
    if namespace == "numpy":
        return digits
    if namespace == "torch":
        import torch

        convert: Any = torch.asarray
    elif namespace == "jax":
        import jax.numpy

        # float32 in, float32 out, whether or not the process has jax_enable_x64.
        convert = jax.numpy.asarray
    else:
        raise ValueError(f"the demo has no data for {namespace!r}: numpy, torch or jax")
    queries, samples, one_hot, truth = digits
    return Digits(convert(queries), convert(samples), convert(one_hot), truth)
