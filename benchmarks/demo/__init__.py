"""Does compiling pay here? One array-API function, three array libraries, one policy file.

``python -m benchmarks.demo`` (or ``make demo``) classifies scikit-learn's handwritten digits by
their nearest neighbours under numpy, jax and torch, as ``configs/demo.toml`` says, and again with
``XPOLICY_MODE=eager``. It exits 1 if the predictions are not the same everywhere.
"""
