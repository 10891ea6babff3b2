"""From a resolved policy to the keywords of the installed ``torch.compile``."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from xpolicy.backends.base import Lowered
from xpolicy.backends.torch import inductor_options, private
from xpolicy.backends.torch.options import CUDAGRAPHS, INDUCTOR
from xpolicy.errors import BackendOptionError, Problem
from xpolicy.policy.options import kebab, nearest

if TYPE_CHECKING:
    from xpolicy.policy.resolve import ResolvedPolicy

#: Keywords of ``torch.compile`` that options stand for, with the option's name.
_SPELLED_AS = {
    "mode": "compile_mode",
    "isolate_recompiles": "recompile_limit",  # each function has a code object of its own
    "fullgraph": "fullgraph",
    "dynamic": "dynamic",
    "options": "options",
    "recompile_limit": "recompile_limit",
}
#: Entries of ``options`` that ``torch.compile`` takes out for itself.
_INSIDE_OPTIONS = ("guard_filter_fn", "use_aoti")


def problem(policy: ResolvedPolicy, name: str, message: str, **told: Any) -> Problem:
    """Return what is wrong with one option, with the place that set it."""
    found = policy.provenance.get(name)
    option, dot, entry = name.partition(".")
    return Problem(
        message,
        origin=found.winner.origin if found else None,
        layer=found.winner.layer if found else "author",
        key=f"torch.{kebab(option)}{dot}{entry}",
        **told,
    )


class _Lowering:
    """One policy on its way: what was found so far, and what is wrong with it."""

    def __init__(self, policy: ResolvedPolicy) -> None:
        import torch

        self.policy = policy
        self.values = policy.values
        self.takes = tuple(inspect.signature(torch.compile).parameters)[1:]
        self.keywords: dict[str, Any] = {}
        self.rows: list[tuple[str, Any, str]] = []
        self.notes: list[str] = []
        self.problems: list[Problem] = []
        self.version = str(torch.__version__)

    def set(self, keyword: str, value: Any, why: str) -> None:
        if keyword not in self.takes:
            self.problems.append(
                problem(
                    self.policy,
                    keyword,
                    f"torch {self.version} has no {keyword!r} in torch.compile",
                    allowed=", ".join(self.takes),
                    fix="use a torch that has it, or leave the option unset",
                )
            )
            return
        self.keywords[keyword] = value
        self.rows.append((keyword, value, why))

    def scalars(self) -> None:
        if self.policy.mode == "fullgraph":
            self.set("fullgraph", True, "mode is fullgraph")
        elif self.values["fullgraph"] is not None:
            self.set("fullgraph", False, "mode is compile")
        if self.values["dynamic"] is not None:
            self.set("dynamic", self.values["dynamic"], "torch.dynamic")
        if self.values["recompile_limit"] is not None:
            self.set("recompile_limit", self.values["recompile_limit"], "torch.recompile-limit")

    def backend(self) -> None:
        name = self.values["backend"]
        if name is None:
            return
        if isinstance(name, str) and name != INDUCTOR:
            import torch._dynamo

            known = torch._dynamo.list_backends(exclude_tags=())
            if name not in known:
                self.problems.append(
                    problem(
                        self.policy,
                        "backend",
                        f"torch {self.version} has no compiler backend {name!r}",
                        value=repr(name),
                        allowed=", ".join(repr(k) for k in known),
                        nearest=nearest(name, known),
                        fix="name one that is registered; a package registers its own under "
                        "the entry point torch_dynamo_backends",
                    )
                )
                return
        self.set("backend", name, "torch.backend")

    def options(self) -> None:
        if self.keywords.get("backend", INDUCTOR) != INDUCTOR:
            return
        table: dict[str, Any] = {}
        preset = self.values["compile_mode"]
        if preset is not None:
            expanded = inductor_options.expansion(preset, self.values["dynamic"])
            why = f'torch.compile-mode = "{preset}" expands to this'
            for name, value in expanded.items():
                table[name] = value
                self.rows.append((f"options.{name}", value, why))
            if not expanded:
                self.notes.append(f'torch.compile-mode = "{preset}" expands to nothing')
        asked = dict(self.values["options"] or {})
        if asked:
            checked, problems = inductor_options.checked(asked, self.policy, self.version)
            self.problems += problems
            for name, value in checked.items():
                self._over(table, name, value, f"torch.options.{name}")
        if self.values["cudagraphs"] is not None:
            self._over(table, CUDAGRAPHS, self.values["cudagraphs"], "torch.cudagraphs")
        if table.get(CUDAGRAPHS):
            why_not = _no_cudagraphs()
            if why_not:
                self.notes.append(f"cudagraphs can do nothing here: {why_not}")
        if table:
            self.keywords["options"] = table

    def _over(self, table: dict[str, Any], name: str, value: Any, why: str) -> None:
        if name in table:
            self.rows = [row for row in self.rows if row[0] != f"options.{name}"]
            why += f", over {table[name]!r} of the preset"
        table[name] = value
        self.rows.append((f"options.{name}", value, why))

    def extras(self) -> None:
        for name, value in self.policy.extra.items():
            if name in _INSIDE_OPTIONS:
                # torch.compile pops them out of the dictionary that it is given.
                self.keywords.setdefault("options", {})[name] = value
                self.rows.append((f"options.{name}", value, "the decorator"))
            elif name in _SPELLED_AS:
                self.problems.append(
                    problem(
                        self.policy,
                        name,
                        f"{name!r} is not given as a keyword of torch.compile",
                        fix=f"use the option {_SPELLED_AS[name]}",
                    )
                )
            elif name not in self.takes:
                self.problems.append(
                    problem(
                        self.policy,
                        name,
                        f"torch {self.version} has no {name!r} in torch.compile",
                        value=repr(value),
                        allowed=", ".join((*self.takes, *_INSIDE_OPTIONS)),
                        nearest=nearest(name, (*self.takes, *_INSIDE_OPTIONS)),
                    )
                )
            else:
                self.set(name, value, "the decorator")
        if "shapes_spec" in self.keywords and "dynamic" in self.keywords:
            self.problems.append(
                problem(
                    self.policy,
                    "dynamic",
                    "dynamic and the decorator's shapes_spec can't both be set: "
                    "shapes_spec says which sizes are dynamic",
                    fix='set dynamic to "unset"',
                )
            )


def lower(policy: ResolvedPolicy) -> Lowered:
    """Say a policy in the keywords of ``torch.compile``; see `TorchBackend.lower`."""
    lowering = _Lowering(policy)
    lowering.scalars()
    lowering.backend()
    lowering.options()
    lowering.extras()
    stance = private.stance_in_force()
    if stance is not None:
        lowering.notes.append(f"{stance} is in force: it decides what torch compiles")
    if lowering.problems:
        raise BackendOptionError(lowering.problems)
    return Lowered(
        keywords=lowering.keywords,
        rows=tuple(lowering.rows),
        notes=tuple(lowering.notes),
        version=lowering.version,
    )


def _no_cudagraphs() -> str | None:
    """Return why CUDA graphs can't work on this machine, or None if they can."""
    import torch

    if not torch.cuda.is_available():
        return "no CUDA device"
    return None
