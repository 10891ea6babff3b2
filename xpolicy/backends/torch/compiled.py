"""The callable that stands for a function under a policy that compiles."""

from __future__ import annotations

import linecache
import threading
from functools import cache
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from xpolicy.backends.torch import private
from xpolicy.backends.torch.breaks import Break, Breaks
from xpolicy.backends.torch.failures import Failures
from xpolicy.backends.torch.graphs import OwnBackend
from xpolicy.backends.torch.limits import Limit
from xpolicy.backends.torch.plain import compiled_publicly
from xpolicy.backends.torch.statics import clone, parameters_of, shim, static_parameters
from xpolicy.backends.torch.watch import LIMIT_HIT, Again, RunOriginal, Watch, notifier
from xpolicy.errors import XPolicyError

if TYPE_CHECKING:
    from collections.abc import Callable

    from xpolicy.backends.base import Lowered, Request

#: Lookups after other threads' compilations before a call runs uncompiled.
_LOOKUPS = 100


def compiled_function(request: Request, lowered: Lowered) -> Callable[..., Any]:
    """Return a callable that runs a request's function compiled; see `TorchBackend.compile`."""
    if lowered.keywords.get("disable"):
        return request.function
    return _caller(request.function, _Maker(request, lowered))


def _caller(function: Callable[..., Any], maker: _Maker) -> Callable[..., Any]:
    """Return the function that is called in place of `function`: as thin as can be.

    Asking each call for every tracer costs 5 % of one that does next to nothing
    (`python -m benchmarks.limits`). So dynamo is told beforehand to trace `function`
    instead, and what the compiled function notices by itself isn't asked.
    """
    under_trace = private.needs_asking()

    def first(*args: Any, **kwargs: Any) -> Any:
        if private.under_trace():  # nothing is built within one
            return function(*args, **kwargs)
        return maker.compiled()(*args, **kwargs)

    made: dict[str, Any] = {}
    exec(_code(_positional(function)), made)
    call, maker.swap = made["factory"](first, function, handled, maker.go_on, under_trace)

    def direct(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    # An outer trace of dynamo goes straight through to the function.
    call._torchdynamo_inline = direct
    call.clear, call.maker = maker.clear, maker
    return call  # type: ignore[no-any-return]


# What `torch.compile` returns packs its arguments; packing them here, too, is 1 % of a
# call. `_xp_under_trace`: its tracers fail around compiled functions, some of them after
# the body has run.
_SOURCE = """
def factory(_xp_first, _xp_function, _xp_handled, _xp_go_on, _xp_under_trace):
    _xp_target = _xp_first

    def call({parameters}):
        if _xp_under_trace():
            return _xp_function({parameters})
        try:
            return _xp_target({parameters})
        except _xp_handled() as raised:
            _xp_problem = raised
        return _xp_go_on(_xp_problem, lambda: _xp_target, {packed})

    def swap(new):
        nonlocal _xp_target
        _xp_target = _xp_first if new is None else new

    return call, swap
"""


def _positional(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return a function's parameters if all are positional and none may be omitted."""
    found = parameters_of(function).values()
    plain = all(
        p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        and p.default is p.empty
        and not p.name.startswith("_xp")
        and p.name != "raised"
        for p in found
    )
    return tuple(p.name for p in found) if plain else ()


@cache
def _code(names: tuple[str, ...]) -> CodeType:
    """Return the module that makes calls of so many arguments; () stands for any."""
    parameters = ", ".join(names) or "*args, **kwargs"
    packed = f"({', '.join(names)},), {{}}" if names else "args, kwargs"
    source = _SOURCE.format(parameters=parameters, packed=packed)
    place = f"<xpolicy torch({parameters})>"
    linecache.cache[place] = (len(source), None, source.splitlines(keepends=True), place)
    return compile(source, place, "exec")


def handled() -> tuple[type[BaseException], ...]:
    """Return the exceptions that a call doesn't end with; looked at only when one is raised."""
    from torch._dynamo import exc

    limit = getattr(exc, LIMIT_HIT, Again)
    ours = (Again, RunOriginal, exc.TorchDynamoException, limit)
    return (*ours, RuntimeError) if any(c() for c in private.refusing_traces()) else ours


class _Maker:
    """Builds the compiled function at the first call, and again after `clear`."""

    def __init__(self, request: Request, lowered: Lowered) -> None:
        self.request = request
        self.keywords = dict(lowered.keywords)
        self.lock = threading.Lock()
        self.swap: Callable[[Callable[..., Any] | None], None] = lambda new: None
        self.made: Callable[..., Any] | None = None
        #: the hook of what was made, and the function that dynamo was given
        self.watch: Watch | None = None
        self.entry: Any = None
        self.failures = Failures(request)
        self.notify = notifier(request.key, request.notify)
        self.fullgraph = request.policy.mode == "fullgraph"
        values = request.policy.values
        self.limit = Limit(
            request.key,
            values["recompile_limit"],
            values["on_recompile_limit"] or "warn",
            request.origin_of("recompile_limit"),
        )
        self.breaks = Breaks(
            request.key,
            None if self.fullgraph else values["graph_break_limit"],
            values["on_graph_break_limit"] or "warn",
            request.origin_of("graph_break_limit"),
        )
        self.breaks.on_excess = lambda instead: self.swap(instead or request.function)

    def compiled(self) -> Callable[..., Any]:
        """Return the compiled function, built once whatever the number of threads."""
        events: list[Any] = []
        try:
            with self.lock:  # no code of the user's runs under it
                if self.made is None:
                    self.breaks.events = events
                    self.made = self._build()
                    self.swap(self.made)
                return self.made
        finally:
            for event in events:
                self.notify(*event)

    def clear(self) -> None:
        """Drop the compiled variants and give the budget back."""
        with self.lock:
            self.made = self.watch = self.entry = None
            self.limit.forget()
            self.breaks.forget()
            self.failures.forget()
            self.swap(None)

    def _build(self) -> Callable[..., Any]:
        function = self.request.function
        parameters = tuple(parameters_of(function))
        named = self.request.policy.values["static_argnames"] or ()
        statics = static_parameters(function, named)
        plain = not statics and isinstance(function, FunctionType)
        entry = clone(function) if plain else shim(function, statics)
        if plain and not self.fullgraph and private.never_traced(function):
            code = function.__code__
            why = "torch traces no function of this package: it runs uncompiled"
            self.breaks.add(Break(code.co_filename, code.co_firstlineno, why))
            self.breaks.check()
            return function
        if private.hooks_available() and private.hook_takes(self.keywords):
            return self._watched(entry, parameters, statics) or function
        if private.dynamo_disabled():
            return function
        backend = OwnBackend(self.keywords, self.breaks, self.notify, self.request.announce)
        return compiled_publicly(entry, backend, self.keywords, self.limit.action)

    def _watched(
        self, entry: Any, parameters: tuple[str, ...], statics: tuple[str, ...]
    ) -> Callable[..., Any] | None:
        """Return the function compiled with a hook on cache misses."""
        watch = Watch(
            entry.__code__, parameters, self.limit, self.breaks, self.failures, self.notify
        )
        watch.backend = OwnBackend(self.keywords, self.breaks)
        watch.announce = self.request.announce
        watch.statics = statics
        watch.fullgraph = self.fullgraph
        watch.file = getattr(getattr(self.request.function, "__code__", None), "co_filename", "")
        compiled: Any = private.hooked(entry, watch.backend, self.keywords, watch.attach)
        if compiled is None:
            return None
        watch.wrapper_code = compiled.__code__
        self.watch, self.entry = watch, entry

        def close() -> None:
            self.swap(private.run_only(entry) or compiled)

        def reopen() -> None:
            watch.uncompiled = False
            if self.made is compiled:
                self.swap(compiled)

        watch.on_closed = close
        watch.backend.on_reset = reopen
        return compiled  # type: ignore[no-any-return]

    def go_on(
        self,
        problem: BaseException,
        target: Callable[[], Callable[..., Any]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Finish a call that the compiled function has not."""
        for _ in range(_LOOKUPS):
            if not isinstance(problem, Again):
                break
            try:
                return target()(*args, **kwargs)
            except handled() as raised:
                problem = raised
        if private.refused_trace(problem):  # nothing has run
            return self.request.function(*args, **kwargs)
        if type(problem) is RuntimeError:
            raise problem
        inner = getattr(problem, "inner_exception", None)
        if isinstance(inner, XPolicyError):
            raise inner from None  # raised in our backend, and wrapped by dynamo
        if type(problem).__name__ == LIMIT_HIT:
            return self._beyond_the_limit(problem, args, kwargs)
        if isinstance(problem, RunOriginal):
            if problem.failure is None:
                return self.request.function(*args, **kwargs)
            return self.failures.before_running(problem.failure, problem.variant, args, kwargs)
        if isinstance(problem, Again):
            return self.request.function(*args, **kwargs)
        if self.fullgraph:  # one graph: nothing of it has run
            return self.failures.before_running(problem, {}, args, kwargs)
        return self.failures.while_running(problem, args, kwargs)

    def _beyond_the_limit(
        self, problem: BaseException, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Go on after torch itself has said that the limit is met."""
        events: list[Any] = []
        try:
            self.limit.exceeded({}, [], [str(problem.__cause__ or problem).strip()], events)
        finally:
            for event in events:
                self.notify(*event)
        return self.request.function(*args, **kwargs)
