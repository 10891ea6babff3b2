"""Compiled calls on their way into a file and out of one."""

from __future__ import annotations

import io
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from xpolicy.backends.stages import CompiledCall
from xpolicy.backends.torch.outlines import TorchStage
from xpolicy.backends.torch.quiet import torch_warnings_ignored
from xpolicy.errors import StructureMismatchError, XPolicyError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from xpolicy.backends.base import Request

#: Keywords of ``torch.compile`` that what is saved is compiled with.
_KEPT = ("dynamic", "options")
#: What torch 2.13 says before anything has run, as a plain RuntimeError.
_GUARDS = "GuardManager check failed"


def serialized(
    request: Request,
    keywords: Mapping[str, Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> bytes:
    """Compile a call again, into something that can be saved.

    Torch can't save the variants that calls find; where inductor has compiled one, this
    finds its code in inductor's own cache.

    Raises
    ------
    XPolicyError
        If torch can't.
    """
    key = request.key
    backend = keywords.get("backend")
    if backend not in (None, "inductor"):
        raise XPolicyError(f"torch can save what inductor compiles; {key} has backend {backend!r}")
    given = {name: value for name, value in keywords.items() if name in _KEPT}
    try:
        with torch_warnings_ignored():
            compiled: Any = torch.compile(request.function, fullgraph=True, **given)
            made = compiled.aot_compile((args, dict(kwargs)))
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "compiled"
                made.save_compiled_function(str(path))
                return path.read_bytes()
    except Exception as error:  # whatever torch says: it can't be saved
        raise XPolicyError(f"torch can't save {key}: {type(error).__name__}: {error}") from error


def load_call(request: Request, data: bytes) -> TorchLoaded:
    """Return the compiled function that `serialized` made the data of."""
    return TorchLoaded(request, torch.compiler.load_compiled_function(io.BytesIO(data)))


class TorchLoaded(TorchStage, CompiledCall):
    """A compiled call out of a file."""

    def __init__(self, request: Request, compiled: Callable[..., Any]) -> None:
        super().__init__(request)
        self._compiled = compiled

    def __call__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run it; torch checks its guards before."""
        try:
            return self._compiled(*args, **kwargs)
        except RuntimeError as error:
            if not str(error).startswith(_GUARDS):
                raise
            parts = re.search(r"verbose_code_parts=\[(.*)\]", str(error))
            raise StructureMismatchError(
                f"{self.request.key} was compiled for torch in other circumstances: "
                f"{parts[1] if parts else error}"
            ) from None

    def as_text(self, dialect: str | None = None) -> str:
        """Raise: the file holds what was compiled, not its code."""
        raise XPolicyError(f"{self.request.key} was loaded: a file holds no output code")
