"""array-api-extra: where its tests are, and what CI runs of them."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from importlib.util import find_spec
from pathlib import Path

VERSION = "0.11.5"
#: The names of the parameters of the library's own fixture.
LIBRARIES = ("numpy", "numpy:readonly", "torch", "jax", "array_api_strict", "array_api_strictest")
#: What CI runs: one quick test, with arrays, of each of so many functions.
SLICE = {
    "TestAngle": "test_simple",
    "TestApplyWhere": "test_xp",
    "TestAtLeastND": "test_1D_values",
    "TestCov": "test_xp",
    "TestCreateDiagonal": "test_xp",
    "TestDeg2Rad": "test_bool",
    "TestExpandDims": "test_axis_tuple",
    "TestIsClose": "test_xp",
    "TestIsIn": "test_simple",
    "TestKron": "test_xp",
    "TestNUnique": "test_simple",
    "TestNanMax": "test_simple",
    "TestNanMean": "test_simple",
    "TestNanMin": "test_simple",
    "TestNanSum": "test_simple",
    "TestNanToNum": "test_complex",
    "TestOneHot": "test_2d",
    "TestPad": "test_ndim",
    "TestRad2Deg": "test_bool",
    "TestSetDiff1D": "test_xp",
    "TestSinc": "test_xp",
    "TestUnion1d": "test_simple",
}
#: As in the library's own pyproject.toml: its tests turn warnings into errors.
INI = """\
[pytest]
addopts = --strict-markers --import-mode=importlib
filterwarnings = error
xfail_strict = true
markers =
    skip_xp_backend(library, /, *, reason=None): as the library's tests use it
    xfail_xp_backend(library, /, *, reason=None, strict=None): as the library's tests use it
    thread_unsafe: as the library's tests use it
"""


def download(version: str, folder: Path) -> Path:
    """Download and unpack the source distribution; return its folder."""
    unpacked = folder / f"array_api_extra-{version}"
    if not unpacked.exists():
        # Its build tool comes as a wheel; only the library itself must be a source.
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--disable-pip-version-check", "--no-binary", "array-api-extra"]
        command += ["--dest", str(folder), f"array-api-extra=={version}"]
        subprocess.run(command, check=True)
        with tarfile.open(folder / f"array_api_extra-{version}.tar.gz") as archive:
            archive.extractall(folder, filter="data")
    return unpacked


def installed() -> Path:
    """Return the folder of the installed library's tests; its wheels hold them."""
    spec = find_spec("array_api_extra")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "tests" / "main"
