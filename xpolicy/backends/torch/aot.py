"""Ahead of time on torch: the exported graph to look at, and variants that calls find."""

from __future__ import annotations

import functools
import inspect
import io
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from xpolicy.backends import sealing
from xpolicy.backends.stages import CompiledCall, LoweredCall, Stage
from xpolicy.backends.structure import Branch, Leaf, outline
from xpolicy.backends.torch import private, signature
from xpolicy.backends.torch.attempt import NothingCompiled, NotRun, attempting
from xpolicy.backends.torch.output_code import output_code
from xpolicy.backends.torch.quiet import torch_warnings_ignored
from xpolicy.backends.torch.watch import Again, RunOriginal
from xpolicy.errors import SealedError, StructureMismatchError, XPolicyError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import CodeType

    from xpolicy.backends.base import Lowered, Request
    from xpolicy.backends.torch.watch import Watch

_NUMBERS = (bool, int, float, complex, str, bytes)
BACKWARD = "the backward pass: torch compiles it at its first use"


class TensorInfo(NamedTuple):
    """What is known of a tensor that nobody has computed."""

    shape: tuple[int, ...]
    dtype: Any
    device: Any


def placeholder(dtype: str, shape: tuple[int, ...], *, weak: bool, device: str | None) -> Any:
    """Return a tensor without content; torch has no weak types, so that says nothing here."""
    del weak
    return torch.empty(
        shape, dtype=getattr(torch, dtype), device="cuda" if device == "rocm" else device
    )


def load_call(request: Request, data: bytes) -> TorchLoaded:
    """Return the compiled function that `TorchCompiled.serialize` made the data of."""
    return TorchLoaded(request, torch.compiler.load_compiled_function(io.BytesIO(data)))


class _TorchStage(Stage):
    """What torch tells arguments apart by."""

    fills_defaults = True

    def __init__(self, request: Request) -> None:
        self.request = request
        named = request.policy.values["static_argnames"] or ()
        parameters = inspect.signature(request.function).parameters
        self.statics = frozenset(name for name in named if name in parameters)

    def outline(self, name: str, value: Any) -> Leaf | Branch:
        """Return the structure of one argument; constants by value, tensors by metadata."""
        if name in self.statics:
            return Leaf(f"static {value!r}", (("static value", _token(value)),))
        return outline(value, _leaf)


class TorchLowered(_TorchStage, LoweredCall):
    """One call that torch will compile.

    Parameters
    ----------
    request, lowered
        The function and its policy, as `TorchBackend.compile` had them.
    call : callable
        What it returned.
    args, kwargs
        The arguments; what has no data, or shall not be kept, is replaced.
    """

    def __init__(
        self,
        request: Request,
        lowered: Lowered,
        call: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> None:
        super().__init__(request)
        self.lowered = lowered
        self.call = call
        self.args, self.kwargs = pytree.tree_map_only(torch.Tensor, _real, (args, dict(kwargs)))
        self.in_tree = pytree.tree_structure((self.args, self.kwargs))

    @functools.cached_property
    def exported(self) -> Any:
        """The exported program; traced when it is first looked at.

        Raises
        ------
        XPolicyError
            If the function is no single graph.
        """
        function = self.request.function

        class Whole(torch.nn.Module):
            def forward(self, *args: Any, **kwargs: Any) -> Any:
                return function(*args, **kwargs)

        try:
            with torch_warnings_ignored():
                # Strict, since the other way runs the function's own Python code.
                return torch.export.export(Whole(), self.args, self.kwargs, strict=True)
        except Exception as error:  # whatever torch says: there is no graph to show
            reason = str(error).strip().splitlines()
            raise XPolicyError(
                f"{self.request.key} can't be exported by torch, so there is no graph to "
                f"show: {type(error).__name__}: {reason[0] if reason else ''}"
            ) from error

    @property
    def out_info(self) -> Any:
        """Shapes, dtypes and devices of what comes out, in the structure of the result."""
        program = self.exported
        values = {node.name: node.meta.get("val") for node in program.graph.nodes}
        told = [
            _info(values[name]) if isinstance(name, str) and name in values else name
            for name in program.graph_signature.user_outputs
        ]
        return pytree.tree_unflatten(told, program.call_spec.out_spec)

    def as_text(self, dialect: str | None = None) -> str:
        """Return the exported FX graph."""
        if dialect not in (None, "fx"):
            raise XPolicyError(f"torch has no {dialect!r} of a function: its graphs are 'fx'")
        return str(self.exported)

    def cost_analysis(self) -> Any:
        """Raise: torch estimates no costs."""
        raise XPolicyError("torch has no cost analysis")

    def compile(self) -> TorchCompiled:
        """Compile; nothing of the function runs."""
        _refuse_inside_traces(self.request.key)
        maker = getattr(self.call, "maker", None)
        if maker is None:
            return self._made(None, (), "torch's own disable=True turns its compiler off")
        started = time.perf_counter()
        made = maker.compiled()
        if maker.watch is None:
            return self._made(None, (), _WITHOUT_HOOK)
        events: list[Any] = []
        try:
            code, new, remaining, reason = self._compiled(made, maker.watch, maker.entry, events)
        finally:
            # Outside of torch's lock: subscribers are other people's code.
            for event in events:
                maker.notify(*event)
        if not reason and torch.is_grad_enabled() and _needs_grad((self.args, self.kwargs)):
            remaining = (*remaining, BACKWARD)
        scope = getattr(maker.entry, "__globals__", {})
        found = self._made((code, scope) if code else None, remaining, reason)
        found.seconds = time.perf_counter() - started if new else None
        return found

    def _made(
        self, text: tuple[CodeType, dict[str, Any]] | None, remaining: tuple[str, ...], reason: str
    ) -> TorchCompiled:
        if reason:
            remaining = (*remaining, f"the function, at its first call: {reason}")
        return TorchCompiled(self, text, remaining, whole=not reason and _only_backward(remaining))

    def _compiled(
        self, made: Callable[..., Any], watch: Watch, entry: Any, events: list[Any]
    ) -> tuple[CodeType | None, bool, tuple[str, ...], str]:
        """Install the variant for the arguments, unless there is one.

        Under torch's own lock, so that no other thread installs it in between: it would be
        run.

        Returns
        -------
        tuple
            Dynamo's code, whether it is new, the graph breaks, and why there is none.
        """
        frame = SimpleNamespace(f_locals=_locals(entry, self.args, self.kwargs))
        with private.compile_lock():
            known = _matching(watch, frame)
            if known is not None:
                return known.code, False, tuple(map(str, watch.breaks.found.values())), ""
            self._refuse(watch, frame)
            if watch.uncompiled:
                return None, False, (), "torch leaves it uncompiled"
            with attempting() as attempt:
                try:
                    made(*self.args, **self.kwargs)
                except NotRun:
                    reason = ""
                except NothingCompiled as nothing:
                    reason = nothing.reason
                except Again:
                    reason = "another thread is compiling it"
                except RunOriginal as stopped:
                    if stopped.failure is not None:
                        raise stopped.failure from None
                    reason = "the policy has it run uncompiled"
                finally:
                    events += attempt.events
            breaks = tuple(text for kind, text, _ in attempt.events if kind == "graph-break")
            known = None if reason else _matching(watch, frame)
            return (known.code if known else None), not reason, breaks, reason

    def _refuse(self, watch: Watch, frame: Any) -> None:
        """Raise if a limit or a seal allows no new variant."""
        now = signature.signature(frame.f_locals, watch.names)
        changed = signature.nearest(now | signature.circumstances(), watch.variants)
        if sealing.action() is not None:
            raise sealing.refusal(self.request.key, "torch", signature.told(now), changed)
        if len(watch.settled_entries()) >= watch.limit.allowed():
            raise watch.limit.error(now, changed, [])


_WITHOUT_HOOK = "this torch can't compile without running, or its compiler is off"


class TorchCompiled(_TorchStage, CompiledCall):
    """One call that torch has compiled; it runs through the function's own variants."""

    def __init__(
        self,
        lowered: TorchLowered,
        text: tuple[CodeType, dict[str, Any]] | None,
        remaining: tuple[str, ...],
        *,
        whole: bool,
    ) -> None:
        super().__init__(lowered.request)
        self._call = lowered.call
        self._keywords = lowered.lowered.keywords
        self._text = text
        self._whole = whole
        self.remaining = remaining
        self._blank = pytree.tree_map_only(torch.Tensor, _Blank.of, (lowered.args, lowered.kwargs))

    def __call__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run the function's variant; compile no other, if it is one whole graph."""
        if not self._whole:
            return self._call(*args, **kwargs)
        try:
            with sealing.sealed_here():
                return self._call(*args, **kwargs)
        except SealedError as error:
            told = "; ".join(error.reasons) or "torch's own state"
            raise StructureMismatchError(
                f"{self.request.key} was compiled for torch in other circumstances: {told}\n"
                f"  fix: call {self.request.key} itself, or lower it in these circumstances"
            ) from None

    def as_text(self, dialect: str | None = None) -> str:
        """Return the code that inductor wrote."""
        if dialect is not None:
            raise XPolicyError(f"torch has no {dialect!r} of what it has compiled")
        found = output_code(*self._text) if self._text is not None else []
        if not found:
            why = self.remaining[0] if not self._text and self.remaining else "not inductor's"
            raise XPolicyError(f"{self.request.key} has no output code: {why}")
        return "\n\n".join(found)

    def serialize(self) -> bytes:
        """Compile the same again into something that can be saved.

        Raises
        ------
        XPolicyError
            If torch can't: the function is no whole graph, or this torch can't save any.
        """
        key = self.request.key
        if not self._whole:
            raise XPolicyError(f"{key} can't be saved: {'; '.join(self.remaining)}")
        args, kwargs = pytree.tree_map_only(_Blank, _Blank.tensor, self._blank)
        given = {n: v for n, v in self._keywords.items() if n in _SAVED_WITH}
        if not given.get("options"):
            given["options"] = {}
        try:
            with torch_warnings_ignored():
                compiled: Any = torch.compile(self.request.function, fullgraph=True, **given)
                made = compiled.aot_compile((args, kwargs))
                with tempfile.TemporaryDirectory() as folder:
                    path = Path(folder) / "compiled"
                    made.save_compiled_function(str(path))
                    return path.read_bytes()
        except Exception as error:  # whatever torch says: it can't be saved
            raise XPolicyError(
                f"torch can't save {key}: {type(error).__name__}: {error}"
            ) from error


#: Keywords of ``torch.compile`` that what is saved is compiled with.
_SAVED_WITH = ("dynamic", "options")


class TorchLoaded(_TorchStage, CompiledCall):
    """A compiled call out of a file."""

    def __init__(self, request: Request, compiled: Callable[..., Any]) -> None:
        super().__init__(request)
        self._compiled = compiled

    def __call__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run it; torch checks its guards."""
        return self._compiled(*args, **kwargs)

    def as_text(self, dialect: str | None = None) -> str:
        """Raise: the file holds what was compiled, not its code."""
        raise XPolicyError(f"{self.request.key} was loaded: a file holds no output code")


class _Blank(NamedTuple):
    """A tensor's metadata; a `Compiled` must not keep arguments alive."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: Any
    device: Any
    requires_grad: bool

    @classmethod
    def of(cls, value: Any) -> _Blank:
        return cls(
            tuple(value.shape), value.stride(), value.dtype, value.device, value.requires_grad
        )

    @staticmethod
    def tensor(blank: _Blank) -> Any:
        made = torch.empty_strided(blank.size, blank.stride, dtype=blank.dtype, device=blank.device)
        return made.requires_grad_(blank.requires_grad)


def _real(value: Any) -> Any:
    """Return a tensor that torch can be called with, for one that has no data."""
    from torch._subclasses.fake_tensor import FakeTensor

    if isinstance(value, FakeTensor):
        device = value.fake_device
    elif value.device.type == "meta":
        device = torch.get_default_device()
    else:
        return value
    sizes = tuple(map(int, value.shape)), tuple(map(int, value.stride()))
    made = torch.empty_strided(*sizes, dtype=value.dtype, device=device)
    return made.requires_grad_(value.requires_grad)


def _locals(entry: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a frame of the function would begin with; guards are checked on it."""
    bound = inspect.signature(entry).bind(*args, **kwargs)
    bound.apply_defaults()
    found = dict(bound.arguments)
    for name, cell in zip(entry.__code__.co_freevars, entry.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not set yet
            continue
    return found


def _matching(watch: Watch, frame: Any) -> Any:
    """Return the variant that a call would run, if there is one."""
    return next((e for e in watch.settled_entries() if private.matches(e, frame)), None)


def _refuse_inside_traces(key: str) -> None:
    functorch, modes, symbolic, jit = private.outer_trace_checks()
    if functorch() is not None or modes() or symbolic() or jit():
        raise XPolicyError(f"{key} can't be compiled ahead of time while something else traces")


def _needs_grad(tree: Any) -> bool:
    return any(
        isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in pytree.tree_leaves(tree)
    )


def _only_backward(remaining: tuple[str, ...]) -> bool:
    return all(text == BACKWARD for text in remaining)


def _info(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return TensorInfo(tuple(value.shape), value.dtype, value.device)
    return value


def _token(value: Any) -> Any:
    """Return what a constant is compared by: type, value and the sign of zero."""
    kind = type(value)
    if isinstance(value, tuple):
        return (kind, tuple(map(_token, value)))
    return (kind, repr(value) if isinstance(value, float | complex) else value)


def _leaf(value: Any) -> Leaf:
    kind = type(value)
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if value is None or isinstance(value, _NUMBERS):
        told = "None" if value is None else f"{value!r} (a Python {kind.__name__})"
        return Leaf(told, (("array", False), ("value", (kind, repr(value)))))
    named = f"{kind.__module__}.{kind.__qualname__}"
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if isinstance(shape, tuple) and dtype is not None:
        named += f" {dtype}[{', '.join(map(str, shape))}]"
    return Leaf(named, (("array", False), ("type", named)))


def _tensor(value: Any) -> Leaf:
    strided = value.layout is torch.strided
    name = str(value.dtype).removeprefix("torch.")
    facts = (
        ("array", True),
        ("rank", value.dim()),
        ("shape", tuple(value.shape)),
        ("dtype", name),
        ("requires_grad", value.requires_grad),
        ("type", type(value).__name__),
        ("layout", str(value.layout)),
        ("strides", value.stride() if strided else None),
    )
    text = f"{name}[{', '.join(map(str, value.shape))}]"
    if value.requires_grad:
        text += " requires_grad"
    if strided and not value.is_contiguous():
        text += f" strides={value.stride()}"
    if type(value) is not torch.Tensor:
        text = f"{type(value).__name__} {text}"
    return Leaf(text, facts, str(value.device))
