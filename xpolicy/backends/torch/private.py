"""Everything that is used of torch beyond its public interface, behind feature detection.

Each function says what it stands on. Where torch lacks that, `hooks_available` is false
and `xpolicy.backends.torch.plain` does what the public interface allows.
"""

from __future__ import annotations

import inspect
import math
import os
import re
import sys
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from xpolicy.policy.writing import show

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from types import CodeType

#: What `torch._dynamo.eval_frame` must have for the hook on cache misses.
_NEEDED = ("_debug_get_cache_entry_list", "optimize")


@cache
def hooks_available() -> bool:
    """Return whether compiled functions can be watched at cache misses.

    Stands on ``torch._dynamo.optimize`` returning an object with a ``callback``, and on
    the cache entries of a code object being listed (torch 2.13).
    """
    try:
        import torch._dynamo
        from torch._dynamo import convert_frame, eval_frame, types, utils
    except ImportError:
        return False
    return (
        all(hasattr(eval_frame, name) for name in _NEEDED)
        and hasattr(convert_frame, "compile_lock")
        and hasattr(types, "ConvertFrameReturn")
        and hasattr(types, "FrameExecStrategy")
        and hasattr(utils, "get_compilation_metrics")
        and hasattr(torch._dynamo.eval_frame, "_TorchDynamoContext")
    )


#: Keywords of ``torch.compile`` that ``torch._dynamo.optimize`` has another name for.
_HOOK_KEYWORDS = {"fullgraph": "nopython"}
#: And those that the function's own backend takes over.
_TAKEN_OVER = {"backend", "options", "name"}
_PASSED_ON = (
    "fullgraph",
    "dynamic",
    "guard_filter_fn",
    "disable",
    "recompile_limit",
    "shapes_spec",
)


def _for_optimize(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords that are set, as ``torch._dynamo.optimize`` calls them."""
    given = {"guard_filter_fn": keywords.get("options", {}).get("guard_filter_fn"), **keywords}
    return {
        _HOOK_KEYWORDS.get(name, name): given[name]
        for name in _PASSED_ON
        if given.get(name) is not None
    }


def hook_takes(keywords: Mapping[str, Any]) -> bool:
    """Return whether `hooked` can be given all that a policy sets.

    An older torch may have a hook, and yet not take what its ``torch.compile`` does; a newer
    one may take what is unknown here, which only ``torch.compile`` itself can be given.
    """
    if not keywords.keys() <= {*_PASSED_ON, *_TAKEN_OVER}:
        return False
    from torch._dynamo import eval_frame

    made = getattr(eval_frame, "_optimize", eval_frame.optimize)
    parameters = inspect.signature(made).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return True
    return parameters.keys() >= _for_optimize(keywords).keys()


def hooked(
    function: Callable[..., Any],
    backend: Callable[..., Any],
    keywords: dict[str, Any],
    hook: Callable[[Callable[..., Any]], Callable[..., Any]],
) -> Any:
    """Compile as ``torch.compile`` does, with a hook around dynamo's frame callback.

    Dynamo calls the callback on cache misses only, so the hook costs nothing on hits.

    Parameters
    ----------
    hook : callable
        Takes dynamo's callback and returns the one to install.

    Returns
    -------
    callable or None
        The compiled function; None if this torch turns compilation off here
        (``TORCHDYNAMO_DISABLE``).

    Notes
    -----
    Variants are kept apart by giving each function a code object of its own
    (`xpolicy.backends.torch.statics.clone`), not by ``isolate_recompiles``: torch 2.13
    keeps the number of the isolated region in a variable of the process, so a thread that
    leaves a compiled function makes another one install its variant in the wrong region
    (seen with 12 threads and two signatures: four compilations).
    """
    import torch._dynamo

    context: Any = torch._dynamo.optimize(backend, **_for_optimize(keywords))
    inner = getattr(context, "callback", None)
    if not callable(inner):
        return None
    outer = hook(inner)
    # The chain that dynamo follows to find the backend, which is part of the cache key.
    # Stances follow it exactly two steps, so the hook stands where `inner` stood.
    outer._torchdynamo_orig_backend = inner._torchdynamo_orig_backend  # type: ignore[attr-defined]
    context.callback = outer
    if hasattr(context, "enter_exit_hooks"):
        context.enter_exit_hooks = [*map(_shorter, context.enter_exit_hooks)]
    return context(function)


def _shorter(hook: Callable[[], Any]) -> Callable[[], Any]:
    """Return what does the same as a hook that torch runs around each call, in fewer frames.

    Counting the generations of modules takes three frames of Python and, the second time,
    adds one to a number: 2 % of a call that does next to nothing (torch 2.13).
    """
    inner = [cell.cell_contents for cell in getattr(hook, "__closure__", None) or ()]
    names = [getattr(getattr(found, "__code__", None), "co_names", ()) for found in inner]
    found = _generations() if names == [("install_generation_tagging_init",)] else None
    return hook if found is None else found


@cache
def _generations() -> Callable[[], Any] | None:
    """Return what counts a generation; None if torch does anything else at each call."""
    from torch._dynamo import eval_frame, mutation_guard

    install: Any = getattr(mutation_guard, "install_generation_tagging_init", None)
    nothing = getattr(eval_frame, "nothing", None)
    if install is None or nothing is None or set(install.__code__.co_names) - {"Any"} != _COUNTING:
        return None
    install()  # patches torch.nn.Module, once a process
    tracker: Any = mutation_guard.GenerationTracker

    def count() -> Any:
        tracker.generation += 1
        return nothing

    return count


#: The names in torch's function that patches ``torch.nn.Module`` and counts a generation.
_COUNTING = {
    "getattr",
    "Module",
    "__init__",
    "__setstate__",
    "___needs_generation_tag_patch",
    "GenerationTracker",
    "generation",
}


def never_traced(function: Callable[..., Any]) -> bool:
    """Return whether dynamo leaves all functions of this one's package alone.

    Its list has, among others, numpy, sklearn, pandas and networkx: compiling a function
    of theirs compiles nothing, without a word.
    """
    try:
        from torch._dynamo import trace_rules
    except ImportError:  # an older torch
        return False
    code = function.__code__
    check = getattr(trace_rules, "check", None)
    return check is not None and not code.co_filename.startswith("<") and bool(check(code))


def of_torch(code: CodeType) -> bool:
    """Return whether a frame is a part of torch itself."""
    import torch

    return code.co_filename.startswith(str(torch.__path__[0]))


def compile_lock() -> Any:
    """Return the lock under which dynamo compiles; reentrant."""
    from torch._dynamo import convert_frame

    return convert_frame.compile_lock


def cache_entries(code: CodeType) -> list[Any]:
    """Return the compiled variants of a code object."""
    from torch._dynamo import eval_frame

    return list(eval_frame._debug_get_cache_entry_list(code))


def matches(entry: Any, frame: Any) -> bool:
    """Return whether a variant would be used for a frame's arguments."""
    return bool(entry.guard_manager.check(frame.f_locals))


def recompile_reasons(entries: list[Any], frame: Any, backend: Any) -> list[str]:
    """Return why each variant was not used, in torch's words."""
    from torch._dynamo import guards

    find = getattr(guards, "get_and_maybe_log_recompilation_reasons", None)
    if find is None:
        return []
    try:
        found = find(entries, frame, backend, skip_logging=True)
    except TypeError:  # older ones take other arguments; these are words for a message
        return []
    return [_brief(str(reason)) for reason in found]


def _brief(reason: str) -> str:
    """Return a reason without the stack below it, nor the line of code unless it is a user's."""
    guard, _, code = reason.partition("\n")[0].partition("  #")
    return guard.strip() if not code or "/xpolicy/" in code else f"{guard.strip()}  #{code}"


def run_this_frame_eagerly() -> Any:
    """Return the answer that makes dynamo run one frame as it is, and forget about it."""
    from torch._dynamo.types import ConvertFrameReturn

    return ConvertFrameReturn(apply_to_code=False)


def only_run_from_now_on() -> Any:
    """Return the answer that makes dynamo compile no more variants of a frame.

    Misses then never reach the hook: they cost less than hits. Resetting dynamo undoes it.
    Not for ``fullgraph``, where a call that runs no compiled frame is an error.
    """
    import torch._dynamo.types

    types: Any = torch._dynamo.types
    strategy = types.FrameExecStrategy(types.FrameAction.RUN_ONLY, types.FrameAction.RUN_ONLY)
    return types.ConvertFrameReturn(frame_exec_strategy=strategy)


def run_only(function: Callable[..., Any]) -> Callable[..., Any] | None:
    """Return a callable that runs the variants that a function has, and compiles no more."""
    from torch._dynamo import eval_frame

    context: Any = getattr(eval_frame, "RunOnlyContext", None)
    made: Callable[..., Any] | None = None if context is None else context()(function)
    return made


def was_limited(result: Any) -> bool:
    """Return whether dynamo has answered that from now on it only runs what is compiled."""
    strategy = getattr(result, "frame_exec_strategy", None)
    return getattr(getattr(strategy, "cur_action", None), "name", "") == "RUN_ONLY"


class Failure(NamedTuple):
    """Why dynamo gave up on a frame."""

    kind: str
    reason: str
    file: str | None
    line: int | None


def last_attempt() -> Any:
    """Return the record of the last compilation, to be compared by identity."""
    from torch._dynamo import utils

    metrics = utils.get_compilation_metrics()
    return metrics[-1] if metrics else None


def failure_since(before: Any) -> Failure | None:
    """Return why the compilation after `before` failed; None if none did."""
    last = last_attempt()
    if last is None or last is before or last.fail_type is None:
        return None
    return Failure(
        last.fail_type,
        last.fail_reason or "",
        last.fail_user_frame_filename,
        last.fail_user_frame_lineno,
    )


def guard_zero_signs(result: Any, arguments: Mapping[str, Any]) -> None:
    """Keep ``0.0`` and ``-0.0`` apart in a variant that was compiled for one of them.

    Dynamo compares float constants with ``==``, and answers ``x / -0.0`` with the variant
    for ``x / 0.0``. Costs nothing where no constant is a zero.

    Most of its comparisons are nodes of their own in its tree of guards, whatever they
    look at (an entry of an argument, an attribute, a global): each gets one for the sign.
    Those of numbers that began as symbols are in one function of all sizes instead, so
    arguments are looked at as well.
    """
    root = getattr(result.guarded_code.guard_manager, "root", None)
    if root is None:
        return
    for node, value in list(_zeros_compared(root)):
        same = partial(_same_signs, _signs(value))
        _add_guard(node, same, f"signs of zeros in {value!r}")
    signs = {n: _signs(v) for n, v in arguments.items()}
    signs = {n: told for n, told in signs.items() if told is not None}
    if not signs:
        return

    def all_same(found: Mapping[str, Any]) -> bool:
        return all(_same_signs(told, found.get(name)) for name, told in signs.items())

    _add_guard(root, all_same, f"signs of zeros in {', '.join(signs)}")


def _add_guard(node: Any, check: Callable[[Any], bool], words: str) -> None:
    """Make a variant miss where a check fails; older torches take no third argument."""
    try:
        node.add_lambda_guard(check, [words], None)
    except TypeError:
        node.add_lambda_guard(check, [words])


def _same_signs(told: Any, value: Any) -> bool:
    """Return whether zeros have the signs told; true of what dynamo itself tells apart."""
    return _agree(told, _signs(value))


def _agree(told: Any, found: Any) -> bool:
    if type(told) is type(found) is tuple:
        return all(map(_agree, told, found))
    return told is None or found is None or told == found


#: ``L['x'][0] == -0.0   # the line of code``, in dynamo's words for its guards.
_COMPARED = re.compile(r" == (-?0\.0|\(?[-+.\w]+j\)?)\s*(  #|$)")


def _zeros_compared(node: Any) -> Iterator[tuple[Any, float | complex]]:
    """Yield the guards that compare with a zero, and the zero (torch 2.13)."""
    for guard in node.get_leaf_guards():
        if type(guard).__name__ == "EQUALS_MATCH":
            for text in guard.verbose_code_parts():
                found = _COMPARED.search(text.partition("  #")[0])
                if found is not None:
                    told = found[1]
                    value = complex(told) if "j" in told else float(told)
                    if _signs(value) is not None:
                        yield node, value
    for child in node.get_child_managers():
        yield from _zeros_compared(child)


def _signs(value: Any, depth: int = 4) -> Any:
    """Return the signs of the zeros in numbers and builtin containers; None if there are none.

    No deeper than any argument is meant to be: a list may contain itself.
    """
    kind = type(value)
    if kind is float:
        return math.copysign(1.0, value) if value == 0.0 else None
    if kind is complex:
        return _signs((value.real, value.imag))
    if depth and kind in (tuple, list, dict):
        items = value.values() if kind is dict else value
        told = tuple(_signs(item, depth - 1) for item in items)
        return told if any(sign is not None for sign in told) else None
    return None


def forget_sizes_seen(code: CodeType, names: Iterable[str]) -> None:
    """Forget which values some integers of a frame had, so that they stay constants.

    For static arguments behind a graph break, where no shim can pin them: dynamo makes an
    integer a symbol when it remembers another value of it.
    """
    try:
        from torch._dynamo import pgo
    except ImportError:  # an older torch keeps it elsewhere
        return
    state = pgo.get_code_state().get(pgo.CodeId.make(code))
    if state is not None:
        for name in names:
            state.automatic_dynamic.pop(f"L[{name!r}]", None)


def forget_all_sizes_seen() -> None:
    """Forget every size that dynamo has seen in this process, whose function it ever was.

    It outlives dropped variants: a function compiled anew has sizes that are dynamic at
    once if others were seen before, and counts would depend on what ran earlier.
    """
    pgo = sys.modules.get("torch._dynamo.pgo")
    state = getattr(pgo, "get_code_state", None)
    if state is not None:
        state().clear()


def inductor(options: dict[str, Any], dynamic: bool | None, name: str | None) -> Any:
    """Return inductor with options, as ``torch.compile`` makes it."""
    import torch

    options = dict(options)
    kind = "_TorchCompileInductorWrapper"
    if options.pop("use_aoti", False):
        kind = "_TorchCompileAOTInductorWrapper"
    made = getattr(torch, kind, None)
    if made is not None:
        # Older ones give it no name.
        return made(None, options, dynamic, *(() if name is None else (name,)))

    from torch._inductor import compile as compile_graph

    def run(graph: Any, inputs: Any) -> Any:
        return compile_graph(graph, inputs, options=options)

    return run


#: Where inductor keeps everything; torch writes it itself where nobody has.
CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
_redirected: str | None = None


def own_cache_folder() -> str | None:
    """Return the folder of inductor's that the user has named, or None.

    torch's default, or the folder that we gave it, stands in the variable because torch
    wrote it there: whoever imports ``torch._dynamo`` has it done.
    """
    said = os.environ.get(CACHE_VARIABLE)
    if said is None or said in (_redirected, default_cache_folder()):
        return None
    return os.path.abspath(said)  # noqa: PTH100  # as torch does it, to be compared as text


@cache
def default_cache_folder() -> str | None:
    """Return where inductor keeps everything by default (torch 2.13)."""
    from torch._inductor.runtime import cache_dir_utils

    find = getattr(cache_dir_utils, "default_cache_dir", None)
    return None if find is None else os.path.abspath(find())  # noqa: PTH100  # as above


@cache
def _default_of_torch() -> Callable[[], str]:
    from torch._inductor.runtime import cache_dir_utils

    return cache_dir_utils.default_cache_dir


def redirect_cache(folder: str | None) -> bool:
    """Give inductor another default folder, or its own again; return whether that works.

    Stands on ``cache_dir()`` asking ``default_cache_dir`` by name where the variable isn't
    set (torch 2.13). torch then writes the folder to the variable, as it does with its own
    default: that is how its compiling processes learn of it. What it had written there
    before is taken out, for it asks once only.

    Precompiled headers go along. torch keeps them below the default folder whatever the
    variable says, most often in ``/tmp``, and makes them anew where they are missing (6 s),
    also for what is in the cache already.
    """
    global _redirected
    if folder is None and _redirected is None:
        return True
    from torch._inductor.runtime import cache_dir_utils

    code = getattr(getattr(cache_dir_utils, "cache_dir", None), "__code__", None)
    names = getattr(code, "co_names", ())
    if "default_cache_dir" not in names or not hasattr(cache_dir_utils, "default_cache_dir"):
        return False
    find, default = _default_of_torch(), default_cache_folder()
    if os.environ.get(CACHE_VARIABLE) in (_redirected, default):
        os.environ.pop(CACHE_VARIABLE, None)
    if folder is not None:

        def find() -> str:
            return folder

    for name in ("cache_dir_utils", "runtime_utils"):
        module = sys.modules.get(f"torch._inductor.runtime.{name}")
        if hasattr(module, "default_cache_dir"):
            module.default_cache_dir = find  # type: ignore[union-attr]  # it has it
    _keep_headers(sys.modules.get("torch._inductor.codecache"), find())
    _redirected = folder
    return True


def _keep_headers(codecache: Any, folder: str) -> None:
    """Move precompiled headers, where inductor has worked their place out already."""
    below = os.path.join(folder, "precompiled_headers")  # noqa: PTH118  # as torch does it
    for name, path in (("_HEADER_DIR", below), ("_HEADER_LOCK_DIR", f"{below}/locks")):
        if hasattr(codecache, name):
            setattr(codecache, name, path)


def without_caches(backend: Any) -> Any:
    """Return inductor as `inductor` makes it, made to neither read nor write caches.

    The switch is no option that ``torch.compile`` takes, but inductor's configuration has
    it, and what is given here holds in whatever thread compiles, backward passes included.
    """
    config = getattr(backend, "config", None)
    if isinstance(config, dict):
        config["force_disable_caches"] = True
    return backend


def default_backend() -> Any:
    """Return the backend that ``torch.compile`` takes when it is given none."""
    from torch._dynamo.backends import registry

    found = getattr(registry, "get_default_backend", None)
    return "inductor" if found is None else found()


def dynamo_disabled() -> bool:
    """Return whether dynamo's configuration turns it off (``TORCH_COMPILE_DISABLE``)."""
    config = sys.modules.get("torch._dynamo.config")
    return bool(getattr(config, "disable", False))


def stance() -> str:
    """Return the current stance, which only a private variable tells."""
    eval_frame = sys.modules.get("torch._dynamo.eval_frame")
    return str(getattr(getattr(eval_frame, "_stance", None), "stance", "default"))


def stance_in_force() -> str | None:
    """Return the call that has set another stance than torch's own, or None."""
    found: Any = getattr(sys.modules.get("torch._dynamo.eval_frame"), "_stance", None)
    backend, unsafe = getattr(found, "backend", None), getattr(found, "skip_guard_eval_unsafe", 0)
    if stance() == "default" and backend is None and not unsafe:
        return None
    told = f'"{stance()}"'
    if backend is not None:
        told += f", force_backend={show(backend)}"
    return f"torch.compiler.set_stance({told}{', skip_guard_eval_unsafe=True' * bool(unsafe)})"


def needs_asking() -> Callable[[], Any]:
    """Return a function that is truthy within traces that a compiled call doesn't notice.

    Dispatch modes are asked about always (``FakeTensorMode``, ``make_fx``,
    ``FlopCounterMode``, non-strict export). Functorch's transforms (``vmap``, ``grad``,
    ``jvp``) make every guard of a tensor fail, so that the hook on misses sees them
    (`transformed`); those of `refusing_traces` are seen by the compiled function itself.
    """
    import torch

    # `bool()` is False, at the cost of one C call.
    modes: Callable[[], Any] = getattr(torch._C, "_len_torch_dispatch_stack", bool)
    if hooks_available() and _refuses_traces():
        return modes
    return lambda: modes() or transformed() or any(check() for check in _others())


def transformed() -> bool:
    """Return whether a transform of functorch is active."""
    import torch

    functorch: Any = getattr(torch._C, "_functorch", None)
    active = getattr(functorch, "peek_interpreter_stack", None)
    return active is not None and active() is not None


def under_trace() -> bool:
    """Return whether another tracer runs the program: any but dynamo itself."""
    return bool(needs_asking()()) or transformed() or any(check() for check in _others())


def guard_against_transforms(result: Any) -> None:
    """Make a variant miss under functorch's transforms where it looks at no tensor.

    Guards of tensors compare what a transform changes. A function that reads none of them
    (``def f(x): return torch.zeros(3)``) has no such guard.
    """
    root = getattr(result.guarded_code.guard_manager, "root", None)
    if root is not None and not _looks_at_tensors(root):
        _add_guard(root, lambda _: not transformed(), "no functorch transform")


def _looks_at_tensors(node: Any) -> bool:
    return any(type(guard).__name__ == "TENSOR_MATCH" for guard in node.get_leaf_guards()) or any(
        map(_looks_at_tensors, node.get_child_managers())
    )


def refusing_traces() -> tuple[Callable[[], Any], ...]:
    """Return functions that are truthy within traces that compiled functions refuse.

    Symbolic tracing of ``torch.fx``, and ``torch.jit.trace``: what ``torch.compile``
    returns raises a RuntimeError in them before it runs anything (torch 2.13).
    """
    return _others() if _refuses_traces() else ()


def refused_trace(error: BaseException) -> bool:
    """Return whether a compiled function has refused to run within another trace."""
    return type(error) is RuntimeError and str(error).startswith(_REFUSED)


_REFUSED = "Detected that you are using FX to"


@cache
def _others() -> tuple[Callable[[], Any], ...]:
    import torch.fx._symbolic_trace

    candidates = (
        getattr(torch.fx._symbolic_trace, "is_fx_symbolic_tracing", None),
        getattr(torch._C, "_is_tracing", None),
    )
    return tuple(check for check in candidates if check is not None)


@cache
def _refuses_traces() -> bool:
    """Return whether what ``torch.compile`` returns looks for traces before it runs."""
    from torch._dynamo import eval_frame

    context: Any = getattr(eval_frame, "_TorchDynamoContext", None)
    code = vars(context)["__call__"].__code__ if context is not None else None
    looks = {"is_fx_symbolic_tracing", "is_jit_tracing"}
    return any(
        looks.issubset(getattr(inner, "co_freevars", ()))
        and any(str(const).startswith(_REFUSED) for const in inner.co_consts)
        for inner in getattr(code, "co_consts", ())
        if hasattr(inner, "co_code")
    )
