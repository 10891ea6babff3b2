"""The pytest plugin: options, the marker ``xpolicy`` and two fixtures, and nothing else.

Every pytest run where xpolicy is installed imports this. What does the work
(`xpolicy.testing.run`) is imported when a test is marked, or an option given.
"""

from __future__ import annotations

import pytest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from xpolicy.testing.run import Run

#: The name that the plugin which does the work is registered under.
_RUN = "xpolicy-run"
_MARKER = (
    "xpolicy(*functions, graph_breaks=None, compilations=None, compute_limit=None, modes=None): "
    "run the test once in each mode of --xpolicy-modes; the functions it is about may need "
    "so many graph breaks, compilations, and computations of dask arrays."
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options; none of them has a short form."""
    group = parser.getgroup("xpolicy", "compile modes of array functions (xpolicy)")
    group.addoption(
        "--xpolicy-modes",
        metavar="MODES",
        help="run tests marked xpolicy once in each of these, such as eager,compile,fullgraph",
    )
    group.addoption(
        "--xpolicy-namespaces",
        metavar="NAMES",
        help="run tests marked xpolicy with these array namespaces only, such as numpy,torch",
    )
    group.addoption(
        "--xpolicy-real",
        action="store_true",
        help="compile torch with the configured backend, not only capture its graphs",
    )
    group.addoption(
        "--xpolicy-ratchet",
        metavar="FILE",
        help="the file of what was recorded; default xpolicy-ratchet.toml in the root directory",
    )
    group.addoption(
        "--xpolicy-record",
        action="store_true",
        help="write what is observed into the ratchet file, instead of failing on anything worse",
    )
    group.addoption(
        "--xpolicy-infer-supports",
        nargs="?",
        const="-",
        metavar="FILE",
        help="propose supports = … for each function and namespace; =FILE.toml writes it there",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker; start at once if an option is given."""
    config.addinivalue_line("markers", _MARKER)
    for option in ("modes", "namespaces", "real", "ratchet", "record", "infer_supports"):
        if config.getoption(f"xpolicy_{option}"):
            _run(config)
            break


def _run(config: pytest.Config) -> Run:
    """Return the plugin that does the work, made the first time that it is needed."""
    run = config.pluginmanager.get_plugin(_RUN)
    if run is None:
        from xpolicy.testing.run import Run

        run = Run(config)
        config.pluginmanager.register(run, _RUN)
    return run


@pytest.hookimpl(trylast=True)  # so that the mode comes last in a test's id
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a marked test into one for each mode."""
    node = metafunc.definition
    # The first question is cheap, and true for every marked test; a folder may be called so.
    marked = "xpolicy" in node.keywords and node.get_closest_marker("xpolicy") is not None
    if marked or "xpolicy_xp" in metafunc.fixturenames:
        _run(metafunc.config).generate(metafunc, marked=marked)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over what a worker of pytest-xdist has observed."""
    observed = getattr(node, "workeroutput", {}).get("xpolicy")
    if observed is not None:
        _run(node.config).take(observed)


@pytest.fixture
def xpolicy_mode(request: pytest.FixtureRequest) -> str | None:
    """Return the mode that the test runs in: "eager", "compile" or "fullgraph".

    None where no modes were asked for: policies decide.
    """
    mode: str | None = getattr(request, "param", None)
    return mode


@pytest.fixture
def xpolicy_xp(request: pytest.FixtureRequest) -> Any:
    """Return an array namespace, each of those that were asked for in turn."""
    return _run(request.config).array_namespace(request.param)
