"""Policies from text, as a process would read them, with nothing of this machine in them."""

from __future__ import annotations

from xpolicy._origin import Origin
from xpolicy.backends.jax.options import SPEC as JAX
from xpolicy.backends.torch.options import SPEC as TORCH
from xpolicy.policy.conditions import Facts
from xpolicy.policy.document import read_document
from xpolicy.policy.layers import Layer, builtin_layer
from xpolicy.policy.options import OptionTable
from xpolicy.policy.resolve import resolve
from xpolicy.sources.author import keyword_rules
from xpolicy.sources.toml import parse

TABLE = OptionTable([TORCH, JAX])
FACTS = Facts("3.12.4", {"torch": "2.13.0", "jax": "0.10.2", "nightly": "2.14.0.dev1"}.get)
KEY = "mylib.linalg.norm"


def read(text, layer="project", *, label="xpolicy.toml", facts=FACTS, version="0.1", package=None):
    """Return the layer and the problems of one document."""
    document = parse(text, label, layer)
    return read_document(
        document.data, document.origin, layer, TABLE, facts, version=version, package=package
    )


def layer_of(text, layer="project", **how):
    """Return the layer of a document that nothing is wrong with."""
    found, problems = read(text, layer, **how)
    assert problems == [], "\n".join(map(str, problems))
    return found


def problems_of(text, layer="project", **how):
    return read(text, layer, **how)[1]


def messages(text, layer="project", **how):
    return [problem.message for problem in problems_of(text, layer, **how)]


def decorated(library="", key=KEY, **options):
    """Return the author layer of a decorator's arguments and a library's file."""
    origin = Origin("code", "mylib/linalg.py", line=7)
    rules, problems = keyword_rules(options, origin, TABLE, pattern=key, declared=True)
    assert problems == [], "\n".join(map(str, problems))
    return Layer("author", "mylib", [*layer_of(library, "author").rules, *rules])


def overridden(pattern=None, namespace=None, **options):
    """Return the layer of an override."""
    origin = Origin("runtime", "app.py", line=3)
    rules, problems = keyword_rules(
        options, origin, TABLE, pattern=pattern, namespace=namespace, layer="runtime"
    )
    assert problems == [], "\n".join(map(str, problems))
    return Layer("runtime", "override", rules)


def policy(*layers, key=KEY, namespace="torch", device=None):
    """Resolve layers, lowest first; a text is a project file."""
    stack = [builtin_layer(TABLE)]
    stack += [layer_of(each) if isinstance(each, str) else each for each in layers]
    return resolve(stack, TABLE, key, namespace, device)
