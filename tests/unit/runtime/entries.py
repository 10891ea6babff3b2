"""An entry for tests of dispatch alone: it says what it was asked, and compiles nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xpolicy.runtime.dispatch import note

if TYPE_CHECKING:
    from collections.abc import Callable

STRONG = ("torch", "jax")


class Recorder:
    """Answers ``bind`` with a callable that records the call it got."""

    def __init__(self, fn: Callable[..., Any], compilers: tuple[str, ...] = STRONG) -> None:
        self.fn = fn
        self.compilers = compilers
        self.table: dict[Any, Any] = {}
        self.bound: list[tuple[type, str]] = []
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.failure: Exception | None = None

    def bind(self, cls: type, namespace: str, array: object) -> Callable[..., Any]:
        assert type(array) is cls
        self.bound.append((cls, namespace))
        if self.failure is not None:
            raise self.failure
        call = self._recording(namespace) if namespace in self.compilers else self.fn
        note(self, cls, array, call)
        return call

    def overridden(self, namespace: str, array: object) -> Callable[..., Any]:
        return self._recording(f"overridden {namespace}")

    def _recording(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append((name, args, kwargs))
            return self.fn(*args, **kwargs)

        return call

    @property
    def namespaces(self) -> list[str]:
        """The namespaces that the calls so far were made for."""
        return [name for name, _, _ in self.calls]
