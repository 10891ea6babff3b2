"""The backend for torch: policies are carried out by ``torch.compile``.

Importing this imports no torch: every import of it stands inside a function that runs
only where the process has imported torch itself.
"""

from __future__ import annotations

from xpolicy.backends.torch.backend import TorchBackend
from xpolicy.backends.torch.options import SPEC, TorchOptions

__all__ = ["SPEC", "TorchBackend", "TorchOptions", "backend"]

#: What the entry point ``xpolicy.backends`` names.
backend = TorchBackend()
