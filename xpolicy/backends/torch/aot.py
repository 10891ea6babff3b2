"""Ahead of time on torch: the exported graph to look at, and variants that calls find."""

from __future__ import annotations

import functools
import inspect
import time
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from xpolicy.backends import sealing
from xpolicy.backends.stages import CompiledCall, LoweredCall
from xpolicy.backends.torch import private, signature
from xpolicy.backends.torch.attempt import NothingCompiled, NotRun, attempting
from xpolicy.backends.torch.outlines import TorchStage
from xpolicy.backends.torch.output_code import output_code
from xpolicy.backends.torch.quiet import torch_warnings_ignored
from xpolicy.backends.torch.saved import serialized
from xpolicy.backends.torch.statics import parameters_of
from xpolicy.backends.torch.watch import Again, RunOriginal
from xpolicy.errors import SealedError, StructureMismatchError, XPolicyError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import CodeType

    from xpolicy.backends.base import Lowered, Request
    from xpolicy.backends.torch.watch import Watch

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


class TorchLowered(TorchStage, LoweredCall):
    """One call that torch will compile.

    Parameters
    ----------
    request, lowered
        The function and its policy, as `TorchBackend.compile` had them.
    call : callable
        What it returned.
    args, kwargs
        The arguments, none of them meta or fake.
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
        self.args, self.kwargs = args, dict(kwargs)
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
        made = TorchCompiled(self, text, remaining, whole=not reason and _only_backward(remaining))
        made.uncompiled = reason
        return made

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


class TorchCompiled(TorchStage, CompiledCall):
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
        # One for each tensor: which arguments are the same one is part of what is compiled.
        blanks: dict[int, _Blank] = {}
        self._blank = pytree.tree_map_only(
            torch.Tensor,
            lambda value: blanks.setdefault(id(value), _Blank.of(value)),
            (lowered.args, lowered.kwargs),
        )

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
        """Compile the same again into something that can be saved; see `saved.serialized`."""
        if not self._whole:
            raise XPolicyError(f"{self.request.key} can't be saved: {'; '.join(self.remaining)}")
        made: dict[int, Any] = {}
        args, kwargs = pytree.tree_map_only(
            _Blank, lambda blank: made.setdefault(id(blank), blank.tensor()), self._blank
        )
        return serialized(self.request, self._keywords, args, kwargs)


@dataclass(frozen=True, slots=True)
class _Blank:
    """A tensor's metadata; a `Compiled` must not keep arguments alive."""

    # No named tuple: torch would open it as a container.
    size: tuple[int, ...]
    stride: tuple[int, ...] | None
    dtype: Any
    device: Any
    requires_grad: bool

    @classmethod
    def of(cls, value: Any) -> _Blank:
        """Take the metadata of a tensor; one with another layout has no strides."""
        stride = value.stride() if value.layout is torch.strided else None
        return cls(tuple(value.shape), stride, value.dtype, value.device, value.requires_grad)

    def tensor(self) -> Any:
        """Return a tensor like the one it was taken of, without its content."""
        if self.stride is None:
            raise XPolicyError("a tensor that isn't strided can't be made again")
        made = torch.empty_strided(self.size, self.stride, dtype=self.dtype, device=self.device)
        return made.requires_grad_(self.requires_grad)


def stand_in(value: Any) -> Any:
    """Return an argument with tensors that torch can be called with in place of others."""
    return pytree.tree_map_only(torch.Tensor, _real, value)


def _real(value: Any) -> Any:
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
    bound = inspect.Signature(list(parameters_of(entry).values())).bind(*args, **kwargs)
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
    if private.under_trace():
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
