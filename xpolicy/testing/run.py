"""What the pytest plugin does once a test is marked: modes, budgets, observations."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from xpolicy.backends.plugins import OURS, registered
from xpolicy.backends.registry import backend_for, option_table
from xpolicy.errors import XPolicyError
from xpolicy.policy.options import MODES, nearest
from xpolicy.policy.testing import settings
from xpolicy.runtime.session import find, place, session
from xpolicy.testing import namespaces, outcomes, ratchet
from xpolicy.testing.budgets import excesses
from xpolicy.testing.forcing import forced
from xpolicy.testing.marks import MARKER, Mark, read_mark
from xpolicy.testing.report import Report
from xpolicy.testing.watching import watch

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

#: What a test that asks for a namespace gets if nobody says which: those that are here.
DEFAULT_NAMESPACES = ("numpy", "torch", "jax", "array_api_strict")
DEFAULT_RATCHET = "xpolicy-ratchet.toml"


class BudgetExceeded(pytest.fail.Exception):  # type: ignore[name-defined,misc]  # it is a class
    """A function needed more in a test than its budget allows."""

    __module__ = "builtins"  # pytest's summary shows it by its bare name, like its own


@dataclass
class Turn:
    """One run of one marked test, in one mode.

    Parameters
    ----------
    mark : Mark
        What its marks say.
    mode : str or None
        The mode; None if policies decide.
    namespace : str or None
        The array namespace, as far as it is known.
    functions : list of dict
        What was observed of each function.
    """

    mark: Mark
    mode: str | None
    namespace: str | None
    functions: list[dict[str, Any]] = field(default_factory=list)


_TURN = pytest.StashKey[Turn]()


class Run:
    """The hooks of one test session, and what it has observed.

    Parameters
    ----------
    config : pytest.Config
        Its options.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.record = bool(config.getoption("xpolicy_record"))
        self.proposal: str | None = _proposal_file(config.getoption("xpolicy_infer_supports"))
        try:
            said = settings(session.loaded().layers)
            problems = [place(p) for p in session.loaded().problems if p.severity == "error"]
        except XPolicyError as error:
            raise pytest.UsageError(str(error)) from None
        if problems and not session.disabled:
            raise pytest.UsageError("\n\n".join(map(str, problems)))
        values = {name: setting.value for name, setting in said.items()}
        self.real = bool(config.getoption("xpolicy_real") or values.get("real"))
        self.modes = _words(config, "modes") or tuple(values.get("modes", ()))
        if not self.modes and (self.record or self.proposal):
            self.modes = MODES
        _check("--xpolicy-modes", self.modes, MODES)
        self.namespaces = tuple(
            option_table().canonical(name)
            for name in _words(config, "namespaces") or values.get("namespaces", ())
        )
        if any(name not in option_table().namespaces for name in self.namespaces):
            option_table(plugins=True)
        _check("--xpolicy-namespaces", self.namespaces, option_table().namespaces)
        file = config.getoption("xpolicy_ratchet") or values.get("ratchet") or DEFAULT_RATCHET
        self.ratchet = Path(config.rootpath, file)
        try:
            self.recorded = ratchet.read(self.ratchet)
        except XPolicyError as error:
            raise pytest.UsageError(str(error)) from None
        self.observed: list[dict[str, Any]] = []
        self.is_worker = hasattr(config, "workeroutput")
        self.report = Report(self)

    # -- collection --------------------------------------------------------------------

    def generate(self, metafunc: pytest.Metafunc, *, marked: bool) -> None:
        """Make a test into one for each namespace and mode."""
        modes: tuple[str, ...] = ()
        if marked:
            only = read_mark(metafunc.definition).modes
            modes = tuple(m for m in self.modes if only is None or m in only)
            if only is not None and not modes:
                modes = only
        if "xpolicy_xp" not in metafunc.fixturenames:
            if modes:
                self._parametrize(metafunc, ["xpolicy_mode"], [(mode,) for mode in modes])
            return
        names = self.namespaces or tuple(n for n in DEFAULT_NAMESPACES if _installed(n))
        if not modes:
            self._parametrize(metafunc, ["xpolicy_xp"], [(name,) for name in names])
            return
        # Where nothing compiles there is one run: all modes are the eager one.
        pairs = [
            (name, mode) for name in names for mode in (modes if registered(name) else modes[:1])
        ]
        self._parametrize(metafunc, ["xpolicy_xp", "xpolicy_mode"], pairs)

    @staticmethod
    def _parametrize(
        metafunc: pytest.Metafunc, names: list[str], values: Sequence[tuple[str, ...]]
    ) -> None:
        # pytest takes parameters for fixtures of the test only. The mode is read off the
        # test, so a test need not ask for the fixture.
        metafunc.fixturenames += [n for n in names if n not in metafunc.fixturenames]
        ids = ["-".join(value) for value in values]
        metafunc.parametrize(names, values, indirect=True, ids=ids)

    def array_namespace(self, name: str) -> Any:
        """Import an array namespace, or skip the test if its library is not there."""
        try:
            return namespaces.load(name)
        except ImportError as error:
            pytest.skip(f"{name} is not installed: {error}")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out marked tests whose namespace was not asked for."""
        if not self.namespaces:
            return
        kept: list[pytest.Item] = []
        left: list[pytest.Item] = []
        for item in items:
            name = None
            if item.get_closest_marker(MARKER) is not None:
                name = namespaces.of_test(_parameters(item), {})
            (left if name is not None and name not in self.namespaces else kept).append(item)
        if left:
            self.config.hook.pytest_deselected(items=left)
            items[:] = kept

    # -- running -----------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Put a marked test, with its fixtures, under its mode."""
        if item.get_closest_marker(MARKER) is None:
            return (yield)
        parameters = _parameters(item)
        turn = Turn(
            read_mark(item), parameters.get("xpolicy_mode"), namespaces.of_test(parameters, {})
        )
        item.stash[_TURN] = turn
        with forced(turn.mode, real=self.real, lift=self.proposal is not None):
            return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip a mode above what a function supports: before fixtures run, if it is known."""
        turn = item.stash.get(_TURN, None)
        if turn is not None:
            self._skip(turn)

    def _skip(self, turn: Turn) -> None:
        name = turn.namespace
        if name is not None and self.namespaces and name not in self.namespaces:
            pytest.skip(f"--xpolicy-namespaces leaves {name} out")
        if turn.mode in (None, "eager"):
            return
        if session.disabled:
            pytest.skip("XPOLICY_DISABLE is set: everything is eager")
        if name is None:
            asked: list[str] = [n for n in OURS if n in sys.modules]
        elif not registered(name):
            # The first mode that was asked for stands for them all.
            if turn.mode != self._first_mode(turn):
                pytest.skip(f"nothing compiles for {name}: all modes are the eager one")
            return
        else:
            asked = [name]
            backend = backend_for(name)
            off = backend.disabled_by() if backend is not None else None
            if off is not None:
                pytest.skip(f"{off} turns the compiler for {name} off")
        pairs = [(find(key), n) for key in turn.mark.functions for n in asked]
        reasons = [outcomes.capped(key, n, entry, turn.mode) for (key, entry), n in pairs]
        if reasons and all(reasons):
            pytest.skip("; ".join(dict.fromkeys(str(reason) for reason in reasons)))

    def _first_mode(self, turn: Turn) -> str | None:
        only = turn.mark.modes
        return next((m for m in (self.modes or only or ()) if only is None or m in only), None)

    @pytest.hookimpl(wrapper=True, trylast=True)  # the innermost: fixtures are set up
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Watch what is compiled during a marked test, and hold it against its budgets."""
        turn = item.stash.get(_TURN, None)
        if turn is None:
            return (yield)
        if turn.namespace is None:  # a project's own fixture may tell
            turn.namespace = namespaces.of_test({}, getattr(item, "funcargs", {}))
            self._skip(turn)
        with watch() as seen:
            try:
                result = yield
            except BaseException as error:
                self.observe(item, turn, seen, error)
                if not self.config.getoption("fulltrace"):
                    outcomes.trim(error)
                raise
            self.observe(item, turn, seen, None)
        functions = seen.called()
        if turn.mark.functions:
            functions = {n: e for n, e in functions.items() if n[0] in turn.mark.functions}
        told = [
            text
            for one in seen
            if (one.key, one.namespace) in functions
            for text in excesses(one, turn.mark.budgets_for(one.key, one.namespace))
        ]
        if told:
            raise BudgetExceeded("\n".join(told), pytrace=False)
        if turn.mode not in (None, "eager"):
            reasons = [
                outcomes.capped(key, name, entry, str(turn.mode))
                for (key, name), entry in functions.items()
                if registered(name)
            ]
            if reasons and all(reasons):
                pytest.skip("; ".join(dict.fromkeys(str(reason) for reason in reasons)))
        return result

    def observe(
        self, item: pytest.Item, turn: Turn, seen: watch, error: BaseException | None
    ) -> None:
        """Note what one test showed of each function that has a compiler."""
        if isinstance(error, pytest.skip.Exception | KeyboardInterrupt | SystemExit):
            return
        turn.functions = outcomes.functions(seen, error, turn.mark.functions, self.config.rootpath)
        self.observed.append(
            {
                "test": _without_mode(item.nodeid, turn.mode),
                "mode": turn.mode or "",
                "outcome": "passed" if error is None else "failed",
                "functions": turn.functions,
                "traced": sorted(seen.only_traced()),
            }
        )

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Let a failure pass that is on record, or is being recorded."""
        report = yield
        turn = item.stash.get(_TURN, None)
        if turn is None:
            return report
        if report.skipped and isinstance(report.longrepr, tuple):
            path, _, reason = report.longrepr
            if path == __file__:  # the place of a test tells more than that of the plugin
                report.longrepr = (str(item.path), (item.location[1] or 0) + 1, reason)
        if call.when != "call" or not report.failed:
            return report
        # Whatever the run is for, a budget that is exceeded is a failure.
        exceeded = call.excinfo is not None and isinstance(call.excinfo.value, BudgetExceeded)
        if turn.mode in (None, "eager") or exceeded:
            return report
        excuse = self._excuse([one for one in turn.functions if one["failed"] is not None])
        if excuse is not None:
            report.outcome = "skipped"
            report.wasxfail = excuse
        return report

    def _excuse(self, blamed: list[dict[str, Any]]) -> str | None:
        names = ", ".join(dict.fromkeys(one["key"] for one in blamed))
        if not blamed:
            return None
        if self.record or self.proposal:
            return f"observed: {names} fails in mode {blamed[0]['mode']}"
        for one in blamed:
            row = self.recorded.get((one["key"], one["namespace"]))
            if row is None or MODES.index(one["mode"]) <= row.level:
                return None
        return f"recorded in {self.ratchet.name}: {names} doesn't reach mode {blamed[0]['mode']}"

    # -- the end -----------------------------------------------------------------------

    def take(self, observed: Iterable[dict[str, Any]]) -> None:
        """Add what a worker of pytest-xdist has observed."""
        self.observed += observed

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hand over to the controller, or hold the whole run against the ratchet."""
        if self.is_worker:
            self.config.workeroutput["xpolicy"] = self.observed  # type: ignore[attr-defined]
            return
        self.report.finish(complete=session.exitstatus in (0, 1))
        if self.report.failed and session.exitstatus == 0:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Tell what was observed."""
        self.report.write(terminalreporter)


def _parameters(item: pytest.Item) -> dict[str, Any]:
    callspec = getattr(item, "callspec", None)
    return dict(callspec.params) if callspec is not None else {}


def _without_mode(nodeid: str, mode: str | None) -> str:
    """Return a test's id without its mode: the same for all its runs."""
    if mode is None:
        return nodeid
    if nodeid.endswith(f"[{mode}]"):
        return nodeid.removesuffix(f"[{mode}]")
    return nodeid.removesuffix(f"-{mode}]") + "]"


def _installed(namespace: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(namespace) is not None


def _words(config: pytest.Config, option: str) -> tuple[str, ...]:
    given = config.getoption(f"xpolicy_{option}") or ""
    return tuple(dict.fromkeys(word.strip() for word in given.split(",") if word.strip()))


def _check(option: str, words: Iterable[str], allowed: Iterable[str]) -> None:
    allowed = tuple(allowed)
    for word in words:
        if word not in allowed:
            near = nearest(word, allowed)
            hint = f"; did you mean {near}?" if near else ""
            raise pytest.UsageError(f"{option} takes {', '.join(allowed)}, not {word!r}{hint}")


def _proposal_file(given: str | None) -> str | None:
    if given is not None and given != "-" and not given.endswith(".toml"):
        raise pytest.UsageError(
            f"--xpolicy-infer-supports={given}: the file's name must end in .toml; "
            "tests to run are named before the option, or after another"
        )
    return given
