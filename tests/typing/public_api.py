"""What an editor knows of a decorated function. Checked by mypy and pyright; never run.

A line that must be an error carries both checkers' own ignore: `make check` fails on an
ignore that nothing needs, so each of them is an assertion.
"""

from __future__ import annotations

from functools import partial
from typing import assert_type

import xpolicy


@xpolicy.compile
def scale(x: float, n: int = 2, *, name: str = "") -> complex:
    """Scale."""
    return complex(x * n, len(name))


@xpolicy.compile(name="lib.halve", static_argnames=("n",), torch={"fullgraph": True})
def halve(x: float, n: int = 2) -> float:
    """Halve."""
    return x / n


def double(x: float) -> float:
    """Double."""
    return 2 * x


class Model:
    """A class whose methods are compiled."""

    @xpolicy.compile
    def predict(self, x: float, n: int = 1) -> complex:
        """Predict."""
        return complex(x, n)

    @xpolicy.compile(name="lib.Model.score")
    def score(self, x: float) -> float:
        """Score."""
        return x

    @staticmethod
    @xpolicy.compile
    def helper(x: float) -> int:
        """Help."""
        return int(x)


# A decorated function keeps its parameters and its result.
assert_type(scale(1.0), complex)
assert_type(scale(1.0, 3, name="a"), complex)
assert_type(halve(x=1.0, n=3), float)
assert_type(xpolicy.compile(double)(2.0), float)
named = xpolicy.compile(double, name="lib.double", mode="eager", torch={"fullgraph": True})
assert_type(named(2.0), float)
assert_type(xpolicy.compile(None, name="lib.double")(double)(x=2.0), float)
named("a")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
named.explain("torch")
xpolicy.compile(double, mode="fast")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
scale("a")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
scale()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
scale(1.0, m=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
halve(1.0, n="a")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
assert_type(partial(scale, 1.0)(n=2), complex)

# So do methods, and `self` is bound.
model = Model()
assert_type(model.predict(1.0), complex)
assert_type(model.predict(x=1.0, n=2), complex)
assert_type(model.score(1.0), float)
assert_type(Model.predict(model, 1.0), complex)
# Through the class only: both checkers bind `self` again for a static or class method that
# is not a plain function, and there is no way to tell them.
assert_type(Model.helper(1.0), int)
model.predict("a")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
model.predict()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]

# What else hangs on a decorated function.
scale.explain
scale.stats
scale.clear()
scale.lower(1.0, n=3)
assert_type(scale.__wrapped__(1.0), complex)
assert_type(scale.__name__, str)
scale.nothing  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]

# Overrides.
with xpolicy.override(mode="eager"):
    pass
with xpolicy.override(mode="fullgraph", everywhere=True):
    pass

# Errors are caught by their base.
try:
    scale(1.0)
except xpolicy.XPolicyError as error:
    print(error)
