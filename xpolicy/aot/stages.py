"""What users hold: one call of a function lowered, and compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from xpolicy.aot.mismatch import checked
from xpolicy.backends.stages import CompiledCall, LoweredCall, Stage
from xpolicy.errors import XPolicyError

if TYPE_CHECKING:
    import inspect
    import os

    from xpolicy.aot.mismatch import Expected
    from xpolicy.policy.resolve import ResolvedPolicy
    from xpolicy.runtime.entry import Entry

S = TypeVar("S", bound=Stage)


class _Staged(Generic[S]):
    """What both stages have.

    Attributes
    ----------
    policy : ResolvedPolicy or None
        The policy that the function has for these arguments; None if no argument is an
        array.
    """

    def __init__(
        self,
        entry: Entry,
        policy: ResolvedPolicy | None,
        expected: Expected,
        signature: inspect.Signature,
        stage: S,
    ) -> None:
        self._stage = stage
        self._entry = entry
        self.policy = policy
        self._expected = expected
        self._signature = signature

    def __repr__(self) -> str:
        told = ", ".join(f"{path}: {item}" for path, item in self._expected.call.items.items())
        name = type(self).__name__
        return f"<{name} {self._expected.key} for {self._expected.namespace}: {told}>"

    def cost_analysis(self) -> Any:
        """Return the compiler's estimate of what a call costs.

        Raises
        ------
        XPolicyError
            If the backend has none.
        """
        return self._stage.cost_analysis()


class Lowered(_Staged[LoweredCall]):
    """One call of a function, lowered under its policy; made by ``f.lower``."""

    @property
    def traced(self) -> Any:
        """The stage before this one: a ``jax.stages.Traced``, with ``jaxpr``.

        Raises
        ------
        XPolicyError
            If the backend has no such stage.
        """
        found = getattr(self._stage, "traced", None)
        if found is None:
            raise XPolicyError(
                f"{self._expected.key}: there is no traced stage for {self._expected.namespace}"
            )
        return found

    @property
    def in_tree(self) -> Any:
        """The structure of the arguments, as the array library has it."""
        return self._stage.in_tree

    @property
    def out_info(self) -> Any:
        """What comes out: dtypes and shapes, in the structure of the result."""
        return self._stage.out_info

    def as_text(self, dialect: str | None = None) -> str:
        """Return the compiler's text before optimisation.

        Parameters
        ----------
        dialect : str, optional
            jax: ``"stablehlo"`` (default), ``"hlo"`` or ``"jaxpr"``; torch: ``"fx"``, the
            exported graph.

        Raises
        ------
        XPolicyError
            If there is none: nothing is compiled for these arguments, or the function
            can't be one graph. The error says why.
        """
        return self._stage.as_text(dialect)

    def compile(self) -> Compiled:
        """Compile it; later calls of the function find what is compiled here.

        Nothing of the function runs: no kernel, and no side effect.

        Returns
        -------
        Compiled
            Takes the same arguments; its ``remaining`` says what later calls of the
            function still compile.

        Raises
        ------
        RecompileLimitError
            If ``recompile-limit`` allows no more variant, whatever the action.
        SealedError
            If it isn't compiled yet and `xpolicy.seal` is in force.
        """
        return Compiled(
            self._entry, self.policy, self._expected, self._signature, self._stage.compile()
        )


class Compiled(_Staged[CompiledCall]):
    """One call of a function, compiled: takes arguments of that structure only."""

    @property
    def remaining(self) -> tuple[str, ...]:
        """What later calls of the function compile all the same; empty if nothing."""
        return self._stage.remaining

    @property
    def seconds(self) -> float | None:
        """Time spent compiling; None if it was compiled already, or loaded."""
        return self._stage.seconds

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run what was compiled.

        Static arguments may be left out, or passed if they are equal.

        Raises
        ------
        StructureMismatchError
            If the arguments are not what it was compiled for; nothing has run then.
        """
        bound = checked(self._expected, self._stage, self._signature, args, kwargs)
        return self._stage(bound.args, bound.kwargs)

    def as_text(self, dialect: str | None = None) -> str:
        """Return what the compiler made: optimised HLO on jax, inductor's code on torch.

        Raises
        ------
        XPolicyError
            If there is none. The error says why.
        """
        return self._stage.as_text(dialect)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what was compiled to a file, for `xpolicy.load`.

        Parameters
        ----------
        path : path-like
            The file; replaced as a whole if it is there.

        Raises
        ------
        XPolicyError
            If the backend can't save it. The error says why.
        """
        from xpolicy.aot.archive import save

        save(self._entry, self.policy, self._expected, self._stage, path)

    def memory_analysis(self) -> Any:
        """Return the compiler's account of memory.

        Raises
        ------
        XPolicyError
            If the backend has none.
        """
        return self._stage.memory_analysis()
