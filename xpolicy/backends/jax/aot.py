"""Ahead of time on jax: ``jax.stages``, with the function's own calling convention around it."""

from __future__ import annotations

import pickle
import time
from typing import TYPE_CHECKING, Any

import jax
from jax.experimental import serialize_executable

from xpolicy.backends.jax.devices import default_device
from xpolicy.backends.jax.signatures import attribute, text_of
from xpolicy.backends.jax.statics import OMITTED, is_constant_type, value_of
from xpolicy.backends.stages import CompiledCall, LoweredCall, Stage
from xpolicy.backends.structure import Branch, Leaf, outline
from xpolicy.errors import XPolicyError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xpolicy.backends.jax.compiled import Compiled


def lower_call(owner: Compiled, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> JaxLowered:
    """Trace and lower one call.

    Parameters
    ----------
    owner : Compiled
        The compiled function; what is compiled here, its calls find.
    args, kwargs
        The function's arguments: arrays, or ``jax.ShapeDtypeStruct`` in their place.
    """
    seen: list[Any] = []
    owner.with_function_signature(lambda *a, **k: seen.append(owner.trace(a, k)))(*args, **kwargs)
    traced, trace = seen[0]
    return JaxLowered(owner, traced, trace)


def load_call(owner: Compiled, data: bytes) -> JaxCompiled:
    """Return the executable that `JaxCompiled.serialize` made the data of."""
    payload, in_tree, out_tree = pickle.loads(data)  # runs code: `xpolicy.load` says so
    executable = serialize_executable.deserialize_and_load(payload, in_tree, out_tree)
    return JaxCompiled(owner, executable)


def placeholder(dtype: str, shape: tuple[int, ...], *, weak: bool, device: str | None) -> Any:
    """Return a ``jax.ShapeDtypeStruct``."""
    sharding = None
    if device is not None:
        platform = {"cuda": "gpu", "rocm": "gpu"}.get(device, device)
        sharding = jax.sharding.SingleDeviceSharding(jax.devices(platform)[0])
    struct: Any = jax.ShapeDtypeStruct
    return struct(shape, dtype, sharding=sharding, weak_type=weak)


class _JaxStage(Stage):
    """What jax tells arguments apart by."""

    def __init__(self, owner: Compiled) -> None:
        self.owner = owner
        self.statics = frozenset(owner.plan.static)

    def outline(self, name: str, value: Any) -> Leaf | Branch:
        """Return the structure of one argument; constants by value, arrays by type."""
        plan = self.owner.plan
        if name in plan.static or (name in plan.auto and is_constant_type(value)):
            key = self.owner.key(value, name)
            return Leaf(f"static {text_of(value_of(key))}", (("static value", key),))
        return outline(value, _leaf, _open)


class JaxLowered(_JaxStage, LoweredCall):
    """One call lowered by jax."""

    def __init__(self, owner: Compiled, traced: Any, trace: Any) -> None:
        super().__init__(owner)
        self.traced = traced
        self._trace = trace
        self._lowered = traced.lower()
        self.in_tree = self._lowered.in_tree
        self.out_info = self._lowered.out_info

    def as_text(self, dialect: str | None = None) -> str:
        """Return StableHLO, or HLO with ``dialect="hlo"``; ``"jaxpr"`` is jax's own."""
        if dialect == "jaxpr":
            return str(self.traced.jaxpr)
        text: str = self._lowered.as_text(dialect)
        return text

    def cost_analysis(self) -> Any:
        """Return XLA's estimate, before optimisation."""
        return self._lowered.cost_analysis()

    def compile(self) -> JaxCompiled:
        """Compile; jax keeps the executable where calls of the function look for it."""
        started = time.perf_counter()
        made = JaxCompiled(self.owner, self._lowered.compile())
        made.seconds = time.perf_counter() - started
        trace, self._trace = self._trace, None
        if trace is not None and trace.signature is not None:
            self.owner.tell_compiled(trace, made.seconds)
        return made


class JaxCompiled(_JaxStage, CompiledCall):
    """One call compiled by jax."""

    def __init__(self, owner: Compiled, executable: Any) -> None:
        super().__init__(owner)
        self.executable = executable
        if owner.convention is None:
            self._run = executable
        else:  # an executable takes no constants: the key stays behind
            self._run = owner.with_function_signature(lambda _key, *a, **k: executable(*a, **k))

    def __call__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run the executable: whatever happens, jax compiles nothing here."""
        return self._run(*args, **kwargs)

    def as_text(self, dialect: str | None = None) -> str:
        """Return the optimised HLO."""
        if dialect not in (None, "hlo"):
            raise XPolicyError(f"what jax has compiled is HLO; there is no {dialect!r} of it")
        text = self.executable.as_text()
        if text is None:
            raise XPolicyError("this device's compiler gives no text of what it compiled")
        return str(text)

    def cost_analysis(self) -> Any:
        """Return XLA's estimate, after optimisation."""
        return self.executable.cost_analysis()

    def memory_analysis(self) -> Any:
        """Return XLA's account of memory, in bytes."""
        return self.executable.memory_analysis()

    def serialize(self) -> bytes:
        """Return the executable, and the trees that it takes and gives."""
        try:
            return pickle.dumps(serialize_executable.serialize(self.executable))
        except (TypeError, ValueError, AttributeError, pickle.PicklingError) as error:
            raise XPolicyError(
                f"{self.owner.request.key}: jax can't save what it compiled: {error}"
            ) from error


def _open(value: Any) -> tuple[str, dict[str, Any], Any] | None:
    """Open one level of a pytree."""
    if value is None or value is OMITTED:
        return None
    items, tree = jax.tree_util.tree_flatten_with_path(value, is_leaf=lambda x: x is not value)
    if jax.tree_util.treedef_is_leaf(tree):
        return None
    found = {jax.tree_util.keystr(path): item for path, item in items}
    own = None if type(value) in (list, tuple, dict) else tree
    return type(value).__name__, found, own


def _leaf(value: Any) -> Leaf:
    kind = type(value)
    if value is None:
        return Leaf("None", (("array", False), ("value", None)))
    if isinstance(value, jax.core.Tracer):
        return Leaf(f"{value.aval} being traced", (("trace", True),))
    if isinstance(value, jax.ShapeDtypeStruct):
        where = _placed(value.sharding)
        return _array(value.dtype, value.shape, bool(value.weak_type), "", *where)
    try:
        aval = jax.typeof(value)
    except TypeError:  # nothing that jax has a type for
        told = f"{kind.__module__}.{kind.__qualname__}"
        shape, dtype = attribute(value, "shape", None), attribute(value, "dtype", None)
        if shape is not None and dtype is not None:
            told += f" {str(dtype).removeprefix('torch.')}{list(shape)}"
        return Leaf(told, (("array", False), ("type", told)))
    said = f" (a Python {kind.__name__})" if kind in (bool, int, float, complex) else ""
    committed = isinstance(value, jax.Array) and value.committed
    where = _placed(value.sharding if committed else None)
    return _array(aval.dtype, aval.shape, bool(getattr(aval, "weak_type", False)), said, *where)


def _placed(sharding: Any) -> tuple[str, bool]:
    """Return where an array is, and whether jax may move it."""
    if sharding is None:
        return str(default_device()), True
    return ", ".join(sorted(map(str, sharding.device_set))), False


def _array(
    dtype: Any, shape: tuple[Any, ...], weak: bool, said: str, device: str, movable: bool
) -> Leaf:
    text = f"{'~' if weak else ''}{dtype}[{', '.join(map(str, shape))}]{said}"
    facts = (
        ("array", True),
        ("rank", len(shape)),
        ("shape", tuple(shape)),
        ("dtype", str(dtype)),
        ("weak type", weak),
    )
    return Leaf(text, facts, device, movable)
