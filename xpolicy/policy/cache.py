"""The ``cache`` table: where compilers keep what they compiled, from one process to the next.

No function's policy depends on it, and so no fingerprint does. What is in such a folder is
code that will run: files that come with code (a library's, a project's) may not name one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from xpolicy.errors import Problem
from xpolicy.policy.options import OptionModel, Unset, option, specs
from xpolicy.policy.testing import Setting
from xpolicy.policy.writing import dotted, show

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from xpolicy._origin import Origin
    from xpolicy.policy.layers import Layer
    from xpolicy.policy.options import OptionSpec

CACHE = "cache"

#: An absolute path of POSIX or Windows, or one below the home directory. A relative one
#: would mean another folder in every process.
_FOLDER = r"^(/|~(/|\\|$)|[A-Za-z]:[/\\]|\\\\)"
_SIZE = r"^[0-9]+(\.[0-9]+)? ?(k|[KMGT]i?)?B$"

#: Whose files come with code, and where else the table may stand.
WHOSE = {"author": "a library's", "project": "a project's"}
TRUSTED_WORDS = "the user file, XPOLICY_FILE, XPOLICY_TOML or a variable"

_LETTERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


class CacheOptions(OptionModel):
    """Where compiled code is kept between processes."""

    dir: Annotated[str, Field(pattern=_FOLDER)] | Unset | None = option(
        """The folder in which compilers keep what they compiled; each gets one of its own
        below it. It is made if need be, and not used if others may write to it.""",
        form='the whole path of a folder, or one that begins with "~/"',
        example='"~/.cache/xpolicy"',
    )
    enabled: bool | Unset | None = option(
        """Whether compilers keep anything at all. ``false`` turns their own caches off too,
        where the program has not turned them on itself.""",
        example="false",
    )
    min_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] | Unset | None = option(
        """How long a compilation must have taken to be kept. 0 where ``dir`` is set and this
        is not, while jax's own default of 1 keeps next to nothing. For jax only: torch keeps
        everything.""",
        form="a number of seconds, 0 or more",
        example="0.5",
    )
    max_size: Annotated[str, Field(pattern=_SIZE)] | Unset | None = option(
        """How large the cache may grow, what was used longest ago making room. For jax only
        (where it needs the package ``filelock``): torch's cache has no limit.""",
        form='a size, such as "500 MB" or "2 GiB"',
        example='"2 GiB"',
    )


_ROWS = {row.key: row for row in specs(CacheOptions, CACHE).values()}


def cache_rows() -> Mapping[str, OptionSpec]:
    """Return what may stand in the table, by TOML key."""
    return _ROWS


def size_in_bytes(text: str) -> int:
    """Return a size as a number of bytes.

    Examples
    --------
    >>> size_in_bytes("2 GiB"), size_in_bytes("1.5 kB")
    (2147483648, 1500)
    """
    found = re.fullmatch(r"([0-9.]+) ?([kKMGT]?)(i?)B", text)
    if found is None:
        raise ValueError(text)
    return int(float(found[1]) * (1024 if found[3] else 1000) ** _LETTERS[found[2].upper()])


def read_cache(
    body: Mapping[str, Any], origin: Origin, layer: str
) -> tuple[dict[str, Setting], list[Problem]]:
    """Return what a document says of caches, by Python name, and what is wrong with that.

    Parameters
    ----------
    body : mapping
        A document whose form has been checked.
    origin : Origin
        The place of its root.
    layer : str
        The layer's name.
    """
    table = body.get(CACHE)
    if not table:
        return {}, []
    if layer in WHOSE:
        refused = [
            Problem(
                f"{_ROWS[key].full_key} may not be set in {WHOSE[layer]} file: what a cache holds is "
                "code that will run",
                origin=origin.child(CACHE, key),
                key=dotted((CACHE, key)),
                layer=layer,
                value=show(value),
                allowed=f"it may stand in {TRUSTED_WORDS}",
                fix="remove it here; whoever runs the program may set "
                f"XPOLICY_CACHE__{_ROWS[key].name.upper()}",
            )
            for key, value in table.items()
        ]
        return {}, refused
    return {
        _ROWS[key].name: Setting(value, origin.child(CACHE, key)) for key, value in table.items()
    }, []


@dataclass(frozen=True)
class CachePolicy:
    """What all layers together say of caches.

    Parameters
    ----------
    settings : mapping of str to Setting
        By Python name; what nobody says is absent.
    """

    settings: Mapping[str, Setting] = field(default_factory=dict)

    @property
    def dir(self) -> str | None:
        """The folder, as it is written; None if nobody names one."""
        return self._value("dir")  # type: ignore[no-any-return]  # checked when it was read

    @property
    def enabled(self) -> bool:
        """Whether caches may be used."""
        return self._value("enabled") is not False

    @property
    def min_seconds(self) -> float | None:
        """What a compilation must have taken to be kept."""
        return self._value("min_seconds")  # type: ignore[no-any-return]  # as above

    @property
    def max_bytes(self) -> int | None:
        """How large a cache may grow."""
        text = self._value("max_size")
        return None if text is None else size_in_bytes(text)

    def origin_of(self, name: str) -> Origin | None:
        """Return where a setting stands."""
        found = self.settings.get(name)
        return None if found is None else found.origin

    def _value(self, name: str) -> Any:
        found = self.settings.get(name)
        return None if found is None else found.value


def cache_policy(layers: Iterable[Layer]) -> CachePolicy:
    """Return what layers say of caches: of each setting, what the highest one says.

    Parameters
    ----------
    layers : iterable of Layer
        Low to high.

    Examples
    --------
    >>> from xpolicy._origin import Origin
    >>> from xpolicy.policy.layers import Layer
    >>> here = Origin("code", "example")
    >>> low = Layer("user", "example", cache={"dir": Setting("/a", here)})
    >>> high = Layer("environment", "example", cache={"enabled": Setting(False, here)})
    >>> cache_policy([low, high]).dir, cache_policy([low, high]).enabled
    ('/a', False)
    """
    found: dict[str, Setting] = {}
    for layer in layers:
        for name, setting in layer.cache.items():
            if setting.value == "unset":
                found.pop(name, None)
            else:
                found[name] = setting
    return CachePolicy(found)
