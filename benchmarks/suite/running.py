"""One run of the tests: pytest in a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from benchmarks.suite.library import INI

ROOT = Path(__file__).parents[2]
MODES = ("eager", "compile", "fullgraph")
POLICY = ROOT / "configs" / "array-api-extra.toml"

#: What came of each test, by its id: `recorder` writes it.
Outcomes = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Suite:
    """Tests, and where what comes of them is written.

    Parameters
    ----------
    tests : Path
        Their folder.
    source : Path or None
        The folder that the library is imported from; None for the installed one.
    folder : Path
        For everything that is written.
    namespaces : str
        The array namespaces, separated by commas.
    select : str or None
        Only these tests, as pytest's ``-k`` takes it.
    """

    tests: Path
    source: Path | None
    folder: Path
    namespaces: str
    select: str | None = None

    def as_it_is(self) -> Outcomes:
        """Run the tests with nothing of ours in their way."""
        return self._run("as-it-is")[0]

    def governed(self, ratchet: Path, *, record: bool) -> tuple[Outcomes, str, int]:
        """Run them in all modes, with the library's functions under policy.

        Returns
        -------
        outcomes : dict
            What came of each test.
        said : str
            What pytest said.
        status : int
            Its exit status.
        """
        options = self._in_modes("governed", MODES, self.namespaces)
        options += ["-vv"]  # with -q: the table, too
        options += [f"--xpolicy-ratchet={ratchet}", *(["--xpolicy-record"] if record else [])]
        return self._run("governed", *options)

    def plain(self, name: str, *, ignore: bool, only: list[str] | None = None) -> Outcomes:
        """Run them in both compiled modes, with the compilers alone.

        Parameters
        ----------
        name : str
            What the files of the run are called.
        ignore : bool
            Whether warnings are ignored; else they are errors, as in the library's tests.
        only : list of str, optional
            The ids of the tests to run.
        """
        namespaces = [n for n in self.namespaces.split(",") if n in ("torch", "jax")]
        if not namespaces or only == []:
            return {}
        options = self._in_modes("plain", MODES[1:], ",".join(namespaces))
        options += ["-W", "ignore"] if ignore else []
        environ = {"SUITE_POLICY": str(POLICY), "SUITE_NAMESPACES": ",".join(namespaces)}
        if only is not None:
            file = self.folder / f"{name}-only.txt"
            file.write_text("\n".join(only), encoding="utf-8")
            environ["SUITE_ONLY"] = str(file)
        return self._run(name, *options, **environ)[0]

    @staticmethod
    def _in_modes(plugin: str, modes: tuple[str, ...], namespaces: str) -> list[str]:
        options = ["-p", "benchmarks.suite.modes", "-p", f"benchmarks.suite.{plugin}"]
        if not entry_points(group="pytest11", name="xpolicy"):
            options += ["-p", "xpolicy.pytest_plugin"]
        options += [f"--xpolicy-modes={','.join(modes)}", f"--xpolicy-namespaces={namespaces}"]
        return options

    def _run(self, name: str, *options: str, **environ: str) -> tuple[Outcomes, str, int]:
        ini, outcomes = self.folder / "pytest.ini", self.folder / f"{name}.json"
        ini.write_text(INI, encoding="utf-8")
        outcomes.unlink(missing_ok=True)
        paths = [str(self.source)] if self.source is not None else []
        environ = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([*paths, str(ROOT)]),
            "SUITE_NAMESPACES": self.namespaces,
            "SUITE_OUTCOMES": str(outcomes),
            "XPOLICY_FILE": str(POLICY),
            "XPOLICY_PROJECT": "none",
            "JAX_PLATFORMS": "cpu",
            **environ,
        }
        command = [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider"]
        command += ["-p", "benchmarks.suite.recorder", "-c", str(ini), "--rootdir", str(self.tests)]
        command += ["-k", self.select] if self.select else []
        # The same examples in each run: what is counted in them is held against a file.
        command += ["--hypothesis-seed=0"]
        shutil.rmtree(self.folder / ".hypothesis", ignore_errors=True)
        said = self.folder / f"{name}.txt"  # written as it comes: a full run takes half an hour
        with said.open("w", encoding="utf-8") as file:
            done = subprocess.run(
                [*command, *options, str(self.tests)],
                env=environ,
                cwd=self.folder,
                stdout=file,
                stderr=subprocess.STDOUT,
                check=False,
            )
        text = said.read_text(encoding="utf-8", errors="replace")
        if not outcomes.exists():
            raise SystemExit(text)
        return json.loads(outcomes.read_text(encoding="utf-8")), text, done.returncode
