"""The hook on dynamo's cache misses: limits, events and one compilation per signature.

Dynamo calls it when no compiled variant fits a frame, before anything of the frame has
run; on hits it isn't called at all. It decides for the function's own entry frame, and
only observes the frames behind it.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from xpolicy.backends import sealing
from xpolicy.backends.base import Event
from xpolicy.backends.torch import attempt, private, signature
from xpolicy.backends.torch.quiet import WARNING, torch_warnings_ignored, warn_caller
from xpolicy.backends.torch.statics import check_hashable

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType

    from xpolicy.backends.torch.breaks import Breaks
    from xpolicy.backends.torch.failures import Failures
    from xpolicy.backends.torch.limits import Limit

#: What dynamo raises at its limits, by name: older versions have no such class.
LIMIT_HIT = "FailOnRecompileLimitHit"
#: How long a thread waits for a variant that another one has compiled to be installed.
_INSTALLED_WITHIN = 1.0


class Signal(BaseException):
    """Leaves dynamo before the function has run, for `compiled_function` to go on.

    Not an `Exception`: nothing in between may take it for the program's own.
    """


class Again(Signal):
    """Another thread has compiled what is wanted: look it up again."""


class Announcing(Signal):
    """Something is going to be compiled: leaves the lock to say so, and comes back."""


class RunOriginal(Signal):
    """The original function is to be run for this call.

    Parameters
    ----------
    failure : BaseException or None
        What the compiler said; `Failures.before_running` decides what follows.
    variant : dict
        Signature and circumstances of the call.
    """

    def __init__(
        self, failure: BaseException | None = None, variant: dict[str, str] | None = None
    ) -> None:
        super().__init__()
        self.failure = failure
        self.variant = variant or {}


class Watch:
    """The hook of one compiled function.

    Parameters
    ----------
    code : CodeType
        The code of its entry frame.
    names : tuple of str
        The names of its arguments.
    """

    def __init__(
        self,
        code: CodeType,
        names: tuple[str, ...],
        limit: Limit,
        breaks: Breaks,
        failures: Failures,
        notify: Callable[[str, str, dict[str, Any]], None],
    ) -> None:
        self.code = code
        self.names = names
        self.limit = limit
        self.breaks = breaks
        self.failures = failures
        self.fullgraph = False
        #: static arguments, and the file in which frames behind a break have them too
        self.statics: tuple[str, ...] = ()
        self.file = ""
        self.notify = notify
        self.wrapper_code: CodeType | None = None
        self.backend: Any = None
        self.inner: Callable[..., Any] = _nothing
        #: called when a compilation begins
        self.announce: Callable[[], None] = lambda: None
        #: signature and circumstances of each variant that was compiled
        self.variants: list[dict[str, str]] = []
        #: whether dynamo has been told to leave calls that no variant fits alone
        self.uncompiled = False
        #: whether what is compiled next has been announced; changed under torch's lock
        self._announced = False
        #: variants that the cache must hold before another miss is believed
        self._expected = 0
        #: Once the limit is met and is no error: the number of variants that says so,
        self._closed_at = 0
        #: and who is told, for whole graphs: such calls need not come here again.
        self.on_closed: Callable[[], None] = lambda: None

    def attach(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        """Return the callback to install around dynamo's own."""
        self.inner = inner

        def hook(frame: Any, *rest: Any) -> Any:
            if frame.f_code is self.code and sys._getframe(1).f_code is self.wrapper_code:
                return self._entry(frame, rest)
            return self._behind(frame, rest)

        return hook

    def _entry(self, frame: Any, rest: tuple[Any, ...]) -> Any:
        if private.dynamo_disabled() or private.transformed():
            raise RunOriginal
        if self._closed_at and len(private.cache_entries(self.code)) >= self._closed_at:
            raise RunOriginal
        events: list[tuple[str, str, dict[str, Any]]] = []
        ahead = attempt.current()
        try:
            while True:
                try:
                    with private.compile_lock():
                        result = self._decide(frame, rest, events)
                    return result if ahead is None else ahead.checked(result)
                except Announcing:
                    self.announce()
        finally:
            # Outside the lock: subscribers, handlers of logs and of warnings are other
            # people's code.
            if ahead is not None:
                ahead.events += events
            else:
                for event in events:
                    self.notify(*event)

    def _decide(self, frame: Any, rest: tuple[Any, ...], events: list[Any]) -> Any:
        check_hashable(self.limit.key, self.statics, frame.f_locals)
        entries = self.settled_entries()
        if any(private.matches(entry, frame) for entry in entries):
            raise Again
        if len(entries) < len(self.variants):
            # Someone emptied the compiler's caches; the budget is whole again.
            del self.variants[: len(self.variants) - len(entries)]
        now = signature.signature(frame.f_locals, self.names)
        around = signature.circumstances()
        if self.failures.known(now | around):
            raise RunOriginal
        if sealing.action() is not None:
            changed = signature.nearest(now | around, self.variants)
            changed = changed or private.recompile_reasons(entries, frame, self.backend)
            self._refuse_sealed(now, changed, events)
            raise RunOriginal
        if len(entries) >= self.limit.allowed():
            reasons = private.recompile_reasons(entries, frame, self.backend)
            changed = signature.nearest(now | around, self.variants)
            self.limit.exceeded(now, changed, reasons, events)
            if not self.fullgraph:
                self.uncompiled = True
                return private.only_run_from_now_on()
            self._closed_at = self.limit.allowed()
            self.on_closed()
            raise RunOriginal
        told: list[Any] = []
        if entries:
            reasons = private.recompile_reasons(entries, frame, self.backend)
            changed = signature.nearest(now | around, self.variants)
            why = "; ".join(changed) or "; ".join(reasons) or "unknown reason"
            counts = {"variants": len(entries) + 1, "limit": self.limit.allowed()}
            told = [("recompile", why, {"changed": changed, "reasons": reasons, **counts})]
        result = self._compile(frame, rest, now, around, events)
        if result.guarded_code is not None:
            self._expected = len(entries) + 1
            events[:0] = told
        self.breaks.leaving(frame.f_code)
        return result

    def _refuse_sealed(self, now: dict[str, str], changed: list[str], events: list[Any]) -> None:
        """Do what the seal says about a call that no variant fits."""
        error = sealing.refusal(self.limit.key, "torch", signature.told(now), changed)
        if sealing.told():
            events.append(("limit", str(error), {"changed": changed, "sealed": True}))
        if sealing.action() == "error":
            raise error
        if sealing.action() == "warn":
            events.append((WARNING, f"{error}\n  this call runs uncompiled", {}))

    def _behind_sealed(self, code: CodeType, events: list[Any]) -> Any:
        """Deal with a frame behind the entry frame while nothing more is to be compiled.

        A call that must find one whole graph comes here only for torch's own helpers, as
        those that carry out a graph's side effects.
        """
        if sealing.told() and not private.of_torch(code):
            place = f"{code.co_name}, {code.co_filename}:{code.co_firstlineno}"
            self._refuse_sealed({"part": place}, [], events)
        return private.run_this_frame_eagerly()

    def settled_entries(self) -> list[Any]:
        """Return the variants, once what was compiled last is installed.

        Dynamo installs a variant after its callback has returned, so another thread can
        come in between and would compile the same again.
        """
        entries = private.cache_entries(self.code)
        until = time.monotonic() + _INSTALLED_WITHIN
        while len(entries) < self._expected and time.monotonic() < until:
            time.sleep(1e-4)
            entries = private.cache_entries(self.code)
        self._expected = 0
        return entries

    def _compile(
        self,
        frame: Any,
        rest: tuple[Any, ...],
        now: dict[str, str],
        around: dict[str, str],
        events: list[Any],
    ) -> Any:
        if not self._announced:
            self._announced = True
            raise Announcing
        self._announced = False
        started = time.perf_counter()
        before = private.last_attempt()
        try:
            result = self._ask(frame, rest, events, of_entry=True)
        except Exception as error:
            if type(error).__name__ == LIMIT_HIT:
                # The limits that torch keeps over all functions, whatever the policy says.
                self.limit.exceeded(now, [], [_cause(error)], events)
                raise RunOriginal from None
            raise RunOriginal(error, now | around) from error
        if result.guarded_code is None:
            return self._skipped(result, frame, now, private.failure_since(before), events)
        private.guard_zero_signs(result, frame.f_locals)
        private.guard_against_transforms(result)
        self._check_breaks(events, behind=False)
        seconds = time.perf_counter() - started
        self.variants.append(now | around)
        told = signature.told(now)
        events.append(
            (
                "compile",
                f"compiled for {told} ({seconds:.2g} s)",
                {"signature": told, "seconds": seconds, "variants": len(self.variants)},
            )
        )
        return result

    def _ask(self, frame: Any, rest: tuple[Any, ...], events: list[Any], *, of_entry: bool) -> Any:
        self.breaks.events = events
        self.backend.of_entry = of_entry
        with torch_warnings_ignored():
            return self.inner(frame, *rest)

    def _skipped(
        self,
        result: Any,
        frame: Any,
        now: dict[str, str],
        failure: private.Failure | None,
        events: list[Any],
    ) -> Any:
        """Deal with an entry frame that dynamo leaves as it is."""
        if private.was_limited(result):
            self.uncompiled = True
            self.limit.exceeded(now, [], [failure.reason] if failure else [], events)
            return result
        if failure is not None and _own_exception(failure):
            # The function raises for these arguments. Torch would never compile it
            # again, whatever it is called with next.
            return private.run_this_frame_eagerly()
        self.breaks.skipped(frame.f_code, result.skip_reason, failure)
        self._check_breaks(events, behind=False)
        self.uncompiled = True
        return result

    def _behind(self, frame: Any, rest: tuple[Any, ...]) -> Any:
        events: list[tuple[str, str, dict[str, Any]]] = []
        try:
            with private.compile_lock():
                if sealing.action() is not None:
                    return self._behind_sealed(frame.f_code, events)
                self.breaks.resumed(frame.f_code, events)
                if self.statics and frame.f_code.co_filename == self.file:
                    private.forget_sizes_seen(frame.f_code, self.statics)
                before = private.last_attempt()
                result = self._ask(frame, rest, events, of_entry=False)
                self.breaks.leaving(frame.f_code)
                failure = private.failure_since(before)
                if result.guarded_code is None and failure is not None:
                    self.breaks.skipped(frame.f_code, result.skip_reason, failure)
            self._check_breaks(events, behind=True)
            return result
        finally:
            for event in events:
                self.notify(*event)

    def _check_breaks(self, events: list[Any], *, behind: bool) -> None:
        self.breaks.events = events
        if self.breaks.check() and not behind:
            raise RunOriginal


def _own_exception(failure: private.Failure) -> bool:
    return failure.kind.startswith("Observed") or "Observed exception" in failure.reason


def _cause(error: BaseException) -> str:
    return str(error.__cause__ or error).strip().splitlines()[0]


def _nothing(*_: Any) -> Any:
    raise AssertionError("the hook was called before it was attached")


def notifier(
    key: str, notify: Callable[[Event], None]
) -> Callable[[str, str, dict[str, Any]], None]:
    """Return a function that sends events about one function, and gives its warnings."""

    def send(kind: str, message: str, details: dict[str, Any]) -> None:
        if kind == WARNING:
            warn_caller(message)
            return
        notify(Event(kind, key, "torch", message, details))

    return send
