"""Inductor's own options: what a preset expands to, which names and types there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_origin

from pydantic import (
    ConfigDict,
    PydanticSchemaGenerationError,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
)

from xpolicy.policy.options import nearest

if TYPE_CHECKING:
    from xpolicy.errors import Problem
    from xpolicy.policy.resolve import ResolvedPolicy


def expansion(preset: str, dynamic: bool | None) -> dict[str, Any]:
    """Return the options that a preset of the installed inductor stands for."""
    import torch._inductor

    return dict(torch._inductor.list_mode_options(preset, dynamic))


def checked(
    asked: dict[str, Any], policy: ResolvedPolicy, version: str
) -> tuple[dict[str, Any], list[Problem]]:
    """Return options as inductor wants them, and what is wrong with the others."""
    from torch._inductor import config as inductor_config

    config: Any = inductor_config  # torch installs its methods when it is run
    from xpolicy.backends.torch.lowering import problem

    known = config.get_config_copy()
    fine: dict[str, Any] = {}
    problems: list[Problem] = []
    for name, value in asked.items():
        if name not in known:
            problems.append(
                problem(
                    policy,
                    f"options.{name}",
                    f"inductor of torch {version} has no option {name!r}",
                    value=repr(value),
                    nearest=nearest(name, known),
                    fix="torch._inductor.list_options() lists them",
                )
            )
            continue
        wanted = config.get_type(name)
        fits, converted = _fit(wanted, value)
        if fits:
            fine[name] = converted
        else:
            problems.append(
                problem(
                    policy,
                    f"options.{name}",
                    f"inductor's option {name!r} takes another type",
                    value=f"{value!r} ({type(value).__name__})",
                    allowed=wanted.__name__ if isinstance(wanted, type) else str(wanted),
                )
            )
    return fine, problems


def _fit(wanted: Any, value: Any) -> tuple[bool, Any]:
    """Return whether a value fits a type of inductor's, and the value as that type.

    torch checks plain types only; of torch 2.13's options 143 have generic ones
    (``int | None``, ``Literal[...]``), and a wrong value of those fails deep inside the
    compiler or is taken silently.
    """
    if isinstance(value, list | tuple):
        for candidate in (list(value), tuple(value)):
            if _is(wanted, candidate):
                return True, candidate
        return False, value
    if wanted is float and type(value) is int:
        return True, float(value)
    if wanted is int and type(value) is bool:
        return False, value
    return _is(wanted, value), value


def _is(wanted: Any, value: Any) -> bool:
    if isinstance(wanted, type) and get_origin(wanted) is None:
        return isinstance(value, wanted)
    try:
        config = ConfigDict(strict=True, arbitrary_types_allowed=True)
        TypeAdapter(wanted, config=config).validate_python(value)
    except ValidationError:
        return False
    except (PydanticSchemaGenerationError, PydanticUserError, NameError):
        return True  # a type that pydantic can't read either: leave it to inductor
    return True
