"""One function compiled by ``jax.jit``: limits, failures and events on misses only."""

from __future__ import annotations

import functools
import threading
import time
import warnings
from typing import TYPE_CHECKING, Any, cast

import jax

from xpolicy.backends import sealing
from xpolicy.backends.base import Event, Lowered, Request
from xpolicy.backends.jax import misses
from xpolicy.backends.jax.arguments import convention_of
from xpolicy.backends.jax.budget import Budget, OverLimit, limit_message
from xpolicy.backends.jax.callers import level_of_caller
from xpolicy.backends.jax.failures import (
    JaxArgumentError,
    cannot_trace,
    check_self,
    explain_failure,
    self_problem,
    unhashable_problem,
)
from xpolicy.backends.jax.plan import Plan, plan
from xpolicy.backends.jax.signatures import Signature, attribute, describe
from xpolicy.backends.jax.statics import key_of
from xpolicy.errors import RecompileLimitError, SealedError, XPolicyWarning

if TYPE_CHECKING:
    from collections.abc import Callable

#: Keywords that the shim takes over.
_NAMED = ("static_argnames", "static_argnums", "donate_argnames", "donate_argnums")


def compile_function(request: Request, lowered: Lowered) -> Callable[..., Any]:
    """Return a callable that runs a function compiled by ``jax.jit``.

    Parameters
    ----------
    request : Request
        The function and its policy.
    lowered : Lowered
        The policy as keywords of ``jax.jit``.

    Raises
    ------
    BackendOptionError
        If a static or donated name is none of the function's parameters.
    """
    layout = plan(request.function, request.policy, lowered.keywords)
    return Compiled(request, lowered, layout).callable()


class _Trace:
    """What happened inside jax while it handled one miss."""

    __slots__ = ("ahead", "before", "error", "signature")

    def __init__(self, *, ahead: bool = False) -> None:
        self.ahead = ahead  # there is no call to run in another way
        self.signature: Signature | None = None
        self.before: tuple[Signature, ...] = ()
        self.error: BaseException | None = None


class Compiled:
    """The state of one compiled function: its variants, and the calls that can't be traced.

    Parameters
    ----------
    request : Request
        The function and its policy.
    lowered : Lowered
        The policy as keywords of ``jax.jit``.
    layout : Plan
        How its arguments are passed.
    """

    def __init__(self, request: Request, lowered: Lowered, layout: Plan) -> None:
        policy = request.policy
        self.request = request
        self.plan = layout
        self.convention = convention_of(layout) if layout.needs_shim else None
        self.budget = Budget(policy.values.get("recompile_limit"))
        self.limit_action = policy.values.get("on_recompile_limit") or "warn"
        self.falls_back = policy.values.get("on_failure") == "eager" and policy.mode != "fullgraph"
        self._keywords = {k: v for k, v in lowered.keywords.items() if k not in _NAMED}
        if self.convention is not None:
            self._keywords["static_argnums"] = (0,)  # the key
        self._local = threading.local()
        self._lock = threading.Lock()
        self._untraceable: set[Any] = set()
        self._warned: set[str] = set()
        parameters = list(layout.signature.parameters) if layout.signature else []
        self._first = parameters[0] if parameters else ""

    # --- the callables ----------------------------------------------------------------

    def callable(self) -> Callable[..., Any]:
        """Return what is called in the function's place."""
        self._top = jax.jit(self._body(counted=True), **self._keywords, **self._donation())
        call = self.with_function_signature(misses.hooked(self._top, self.miss))
        lower = self.with_function_signature(lambda *a, **k: self.trace(a, k)[0].lower())
        call.clear, call.lower, call.owner = self.clear, lower, self  # type: ignore[attr-defined]
        return call

    def with_function_signature(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        """Return what takes the function's arguments and hands them on as jax is given them."""
        if self.convention is None:
            return inner
        name = getattr(self.request.function, "__name__", "function")
        return self.convention.shim(inner, self.key, name)

    def trace(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, _Trace]:
        """Trace one call ahead of time, the arguments as jax is given them.

        Returns
        -------
        traced : jax.stages.Traced
            What jax made of it; what is compiled from it, later calls find.
        trace : _Trace
            Its ``signature`` is None if jax had traced the same before.
        """
        outer, trace = getattr(self._local, "trace", None), _Trace(ahead=True)
        self._local.trace = trace
        try:
            return cast(Any, self._top).trace(*args, **kwargs), trace
        finally:
            self._local.trace = outer

    def _donation(self) -> dict[str, Any]:
        if not self.plan.donated:
            return {}
        if self.convention is None:
            return {"donate_argnames": self.plan.donated}
        return self.convention.donation()

    @functools.cached_property
    def _inner(self) -> Callable[..., Any]:
        # A function of its own, so that what an outer trace leaves in jax's tracing cache
        # is no variant of ours: a later call at the top would find it, uncounted.
        # Without compiler_options, which jax refuses there, and without donation, which
        # under an eager jax.grad deletes an array that is still needed.
        keywords = {k: v for k, v in self._keywords.items() if k != "compiler_options"}
        return jax.jit(self._body(counted=False), **keywords)

    def _body(self, *, counted: bool) -> Callable[..., Any]:
        function, convention = self.request.function, self.convention
        if convention is None:

            def body(*args: Any, **kwargs: Any) -> Any:
                if not counted or not misses.body_is_traced(args, kwargs):
                    return function(*args, **kwargs)
                signature = self._describe_direct(args, kwargs)
                return self._traced(signature, function, args, kwargs)

            functools.update_wrapper(body, function)
            if self.plan.signature is not None:  # jax would follow __wrapped__ past it
                body.__signature__ = self.plan.signature  # type: ignore[attr-defined]
        else:

            def body(*args: Any, **kwargs: Any) -> Any:
                key, *passed = args
                positional, named = convention.restore(key, passed, kwargs)
                if not counted or not misses.body_is_traced(args, kwargs):
                    return function(*positional, **named)
                signature = describe(*convention.told(key, passed, kwargs))
                return self._traced(signature, function, positional, named)

            functools.update_wrapper(body, function)
            body.__signature__ = convention.signature()  # type: ignore[attr-defined]
        return body

    # --- inside the trace ---------------------------------------------------------------

    def _describe_direct(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Signature:
        if self.plan.signature is None:
            traced = {f"argument {place}": value for place, value in enumerate(args)}
            return describe({**traced, **kwargs}, {}, {})
        try:
            given = self.plan.signature.bind(*args, **kwargs).arguments
        except TypeError:  # what is wrapped takes other arguments, or the function will say so
            traced = {f"argument {place}": value for place, value in enumerate(args)}
            return describe({**traced, **kwargs}, {}, {})
        omitted = {
            name: parameter.default
            for name, parameter in self.plan.signature.parameters.items()
            if name not in given and parameter.default is not parameter.empty
        }
        return describe(given, {}, omitted)

    def _traced(
        self, signature: Signature, function: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        trace: _Trace | None = getattr(self._local, "trace", None)
        if sealing.action() is not None:
            if trace is None or trace.ahead:
                raise self._refusal(signature)
            raise OverLimit(signature, sealed=True)
        admitted, before = self.budget.admit(signature)
        if not admitted:
            if trace is None or trace.ahead:
                raise RecompileLimitError(limit_message(self.request, self.budget, signature))
            raise OverLimit(signature)
        if trace is not None:
            trace.signature, trace.before = signature, before
        self.request.announce()  # what is traced here is compiled next
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            self.budget.withdraw(signature)
            if trace is not None:
                trace.error = error
            raise

    # --- around it ------------------------------------------------------------------------

    def miss(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], proceed: Callable[..., Any]
    ) -> Any:
        """Handle a call that jax has no compiled program for."""
        if misses.under_trace() or misses.any_tracer(args, kwargs):
            return self._inner(*args, **kwargs)
        if self._untraceable and self._call_key(args, kwargs) in self._untraceable:
            return self._original(args, kwargs)
        outer, trace = getattr(self._local, "trace", None), _Trace()
        self._local.trace = trace
        start = time.perf_counter()
        try:
            result = proceed(*args, **kwargs)
        except OverLimit as over:  # ours: what a body calls is under its trace, and has no limit
            refuse = self._sealed if over.sealed else self._over
            return refuse(over.signature, args, kwargs)
        except Exception as error:  # noqa: BLE001  # raised again unless jax can't trace
            return self._failed(error, trace, args, kwargs)
        finally:
            self._local.trace = outer
        if trace.signature is not None:
            self.tell_compiled(trace, time.perf_counter() - start)
        return result

    def tell_compiled(self, trace: _Trace, seconds: float) -> None:
        """Tell subscribers of a new variant, and of what made it necessary."""
        told: dict[str, Any] = {"signature": str(trace.signature), "seconds": seconds}
        text = f"{self.request.key} compiled for jax in {seconds:.3g} s: {trace.signature}"
        self._notify("compile", text, told)
        if trace.before and trace.signature is not None:
            _, changes = trace.signature.nearest(trace.before)
            reason = "; ".join(changes) or "a setting of jax's own"
            more = {"reason": reason, "changed": changes, "limit": self.budget.limit}
            more["variants"] = len(trace.before) + 1
            self._notify("recompile", f"{self.request.key}: {reason}", {**told, **more})

    def _over(self, signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        text = limit_message(self.request, self.budget, signature)
        _, changes = signature.nearest(self.budget.variants)
        told = {"signature": str(signature), "limit": self.budget.limit, "changed": changes}
        self._notify("limit", text, told)
        if self.limit_action == "error":
            raise RecompileLimitError(text) from None
        if self.limit_action == "warn":
            self._warn_once("limit", f"{text}\n  until then such calls run the original function")
        return self._original(args, kwargs)

    def _refusal(self, signature: Signature) -> SealedError:
        _, changes = signature.nearest(self.budget.variants)
        return sealing.refusal(self.request.key, "jax", str(signature), changes)

    def _sealed(self, signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        error = self._refusal(signature)
        self._notify("limit", str(error), {"signature": str(signature), "sealed": True})
        action = sealing.action() or "error"
        if action == "error":
            raise error from None
        if action == "warn":
            text = f"{error}\n  this call runs uncompiled"
            warnings.warn(text, XPolicyWarning, stacklevel=level_of_caller())
        return self._original(args, kwargs)

    def _failed(
        self, error: Exception, trace: _Trace, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        from_function = trace.error is not None
        if not cannot_trace(error, from_function=from_function):
            # From XLA, or from running what was compiled: jax keeps the trace, so it counts.
            raise error
        if trace.signature is not None and not from_function:
            self.budget.withdraw(trace.signature)  # jax refused what the function returned
        if not self.falls_back:
            if not from_function and self.convention is None:
                check_self(self.request, args, self._first, error)
            explain_failure(error, self.request)
            raise error
        with self._lock:
            self._untraceable.add(self._call_key(args, kwargs))
        said = str(error).strip().partition("\n")[0]
        reason = f"{type(error).__name__}: {said}"
        text = f"{self.request.key} runs eagerly on jax, which can't trace it: {reason}"
        self._notify("fallback", text, {"reason": reason})
        self._warn_once("fallback", text)
        return self._original(args, kwargs)

    def _original(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.convention is not None:
            key, *passed = args
            positional, kwargs = self.convention.restore(key, passed, kwargs)
            args = tuple(positional)
        return self.request.function(*args, **kwargs)

    def _call_key(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        key = ()
        if self.convention is not None:
            key, args = args[0], args[1:]
        leaves, structure = jax.tree_util.tree_flatten((args, kwargs))
        kinds = tuple(
            (type(x), str(attribute(x, "dtype", "")), str(attribute(x, "shape", "")))
            for x in leaves
        )
        return key, structure, kinds

    # --- small things ----------------------------------------------------------------------

    def key(self, value: Any, name: str) -> Any:
        """Return the key of a static value, or an error that names the argument."""
        if name == "self" == self._first:
            kind: Any = type(value)
            if kind.__hash__ in (None, object.__hash__) or kind.__eq__ is object.__eq__:
                raise JaxArgumentError([self_problem(self.request, value, name)])
        try:
            return key_of(value)
        except TypeError as error:
            raise JaxArgumentError([unhashable_problem(self.request, value, name)]) from error

    def _notify(self, kind: str, text: str, details: dict[str, Any]) -> None:
        self.request.notify(Event(kind, self.request.key, "jax", text, details))

    def _warn_once(self, kind: str, text: str) -> None:
        with self._lock:
            if kind in self._warned:
                return
            self._warned.add(kind)
        warnings.warn(text, XPolicyWarning, stacklevel=level_of_caller())

    def clear(self) -> None:
        """Drop all compiled variants and what is remembered about failures."""
        cast(Any, self._top).clear_cache()
        self.budget.clear()
        with self._lock:
            self._untraceable.clear()
