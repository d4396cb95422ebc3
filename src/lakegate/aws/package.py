"""The function as one zip: lakegate, and the fewest packages that run it against Spark Connect, without a JVM."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from typing import Literal

import lakegate
from lakegate.aws.trimming import is_needed
from lakegate.errors import ConfigurationError, RetryableError

Architecture = Literal["x86_64", "arm64"]

MAX_BYTES = 262_144_000
"""AWS's limit of a function's unpacked size: https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html."""
_FORMAT = 1
"""To be raised when the same input is to give another zip."""
_SETTINGS = "lakegate.toml"
_LOCK = Path(__file__).with_name("function.lock")
_PLATFORMS: dict[Architecture, str] = {"x86_64": "x86_64-manylinux_2_28", "arm64": "aarch64-manylinux_2_28"}
_LEFT_OUT = ("aws/", "cli/", "orchestrators/dbos/", "orchestrators/prefect/")
_METADATA = ("METADATA", "entry_points.txt")
_TIME = (1980, 1, 1, 0, 0, 0)
_BUFFER = 1 << 20


@dataclass(frozen=True, slots=True)
class FunctionPackage:
    """What is put into the function, and for which of Lambda's machines.

    Attributes:
        python: Version of Lambda's Python: ``3.12``.
        architecture: Lambda's processor.
        settings: The ``lakegate.toml`` that goes with it; ``None`` for none.
    """

    python: str = "3.12"
    architecture: Architecture = "x86_64"
    settings: Path | None = None


def build_package(folder: Path, wanted: FunctionPackage | None = None) -> Path:
    """Build the function's zip in ``folder``, unless the same one is there already.

    The same lakegate, lock, settings and interpreter give the same bytes. Where a Python of the wanted version is on
    this machine, its bytecode goes in instead of the packages' source, for a faster first start.

    Args:
        folder: Where zips are kept; is made.
        wanted: For which machines; by default those of :class:`FunctionPackage`.

    Returns:
        The zip's path.

    Raises:
        ConfigurationError: When uv is not installed, or there are no built packages for that Python and processor.
        RetryableError: When the package index does not answer.
        LakegateError: When the function got larger than Lambda takes.
    """
    wanted = wanted or FunctionPackage()
    interpreter = _interpreter(wanted.python)
    zipped = folder / f"function-{_digest(wanted, interpreter)[:16]}.zip"
    if zipped.is_file():
        return zipped
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix="build-") as scratch:
        tree = Path(scratch, "tree")
        _install(Path(scratch, "installed"), tree, wanted)
        _add_lakegate(tree, wanted.settings)
        if interpreter is not None:
            _compile(tree, interpreter)
        _require_fit(tree)
        unfinished = Path(scratch, "function.zip")
        _zip(tree, unfinished)
        unfinished.replace(zipped)
    return zipped


def unpacked_bytes(package: Path) -> int:
    """Return the size of a zip's files, which is what Lambda limits."""
    with zipfile.ZipFile(package) as archive:
        return sum(entry.file_size for entry in archive.infolist())


def settings_in(package: Path) -> bytes | None:
    """Return the ``lakegate.toml`` that went into a zip; ``None`` when none did."""
    with zipfile.ZipFile(package) as archive:
        return archive.read(_SETTINGS) if _SETTINGS in archive.namelist() else None


def _uv() -> str:
    try:
        from uv import find_uv_bin  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigurationError(
            "Building the function needs the package uv, which is not installed.", hint="pip install 'lakegate[aws]'"
        ) from error
    return find_uv_bin()


def _interpreter(python: str) -> tuple[str, str] | None:
    """Return a Python of that version and what it calls itself, or ``None`` when this machine has none."""
    if python == f"{sys.version_info[0]}.{sys.version_info[1]}":
        return sys.executable, sys.version
    found = _run([_uv(), "python", "find", "--no-python-downloads", "--no-project", "--system", python])
    if found.returncode:
        return None
    path = found.stdout.strip()
    asked = _run([path, "-c", "import sys; print(sys.version)"])
    return None if asked.returncode else (path, asked.stdout)


def _digest(wanted: FunctionPackage, interpreter: tuple[str, str] | None) -> str:
    digest = hashlib.sha256()
    settings = wanted.settings.read_bytes() if wanted.settings else b""
    facts = (str(_FORMAT), wanted.python, wanted.architecture, interpreter[1] if interpreter else "")
    for part in (*(fact.encode() for fact in facts), settings, _LOCK.read_bytes(), Path(__file__).read_bytes()):
        digest.update(hashlib.sha256(part).digest())
    digest.update(Path(__file__).with_name("trimming.py").read_bytes())
    for name, path in _lakegate_files():
        digest.update(name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _install(installed: Path, tree: Path, wanted: FunctionPackage) -> None:
    command = [_uv(), "pip", "install", "--quiet", "--no-config", "--no-python-downloads", "--require-hashes"]
    command += ["--no-deps", "--target", str(installed), "--python-version", wanted.python]
    command += ["--python-platform", _PLATFORMS[wanted.architecture], "--python", sys.executable]
    # Spark's client is published as source only; it is plain Python.
    command += ["--only-binary", ":all:", "--no-binary", "pyspark-client", "--requirements", str(_LOCK)]
    done = _run(command)
    if done.returncode:
        raise _refused(done.stderr, wanted)
    for path in _files(installed):
        name = path.relative_to(installed).as_posix()
        if is_needed(name):
            target = tree / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(path, target)


def _refused(said: str, wanted: FunctionPackage) -> ConfigurationError | RetryableError:
    last = " ".join(said.split())[-400:]
    message = f"The packages of the function could not be had for Python {wanted.python} on {wanted.architecture}: "
    if "No solution found" in said:
        hint = "Choose another --python-version or --architecture."
        return ConfigurationError(message + last, hint=hint)
    return RetryableError(message + last, hint="Check the network and the package index, and try again.")


def _lakegate_files() -> Iterator[tuple[str, Path]]:
    root = Path(lakegate.__file__).parent
    for path in _files(root):
        name = path.relative_to(root).as_posix()
        if "__pycache__/" not in name and not name.startswith(_LEFT_OUT):
            yield f"lakegate/{name}", path


def _add_lakegate(tree: Path, settings: Path | None) -> None:
    for name, path in _lakegate_files():
        target = tree / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    installed = distribution("lakegate")
    folder = tree / f"lakegate-{installed.version}.dist-info"
    folder.mkdir()
    for name in _METADATA:
        (folder / name).write_text(installed.read_text(name) or "", encoding="utf-8")
    if settings is not None:
        shutil.copyfile(settings, tree / _SETTINGS)


def _compile(tree: Path, interpreter: tuple[str, str]) -> None:
    """Put bytecode in place of the packages' source, and beside lakegate's own: its migrations are read as files."""
    program = (
        "import compileall, py_compile, sys\n"
        "unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH\n"
        "own, others = sys.argv[1:3]\n"
        "given = {'quiet': 2, 'invalidation_mode': unchecked, 'stripdir': others, 'prependdir': '/var/task'}\n"
        "import re\n"
        "compileall.compile_dir(own, **given)\n"
        "compileall.compile_dir(others, rx=re.compile(re.escape(own)), legacy=True, **given)\n"
    )
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    _run([interpreter[0], "-c", program, str(tree / "lakegate"), str(tree)], env={**clean, "PYTHONHASHSEED": "0"})
    for path in _files(tree):
        if path.suffix == ".py" and path.with_suffix(".pyc").is_file():
            path.unlink()


def _require_fit(tree: Path) -> None:
    total = sum(path.stat().st_size for path in _files(tree))
    if total > MAX_BYTES:
        raise ConfigurationError(
            f"The function has {total:,} bytes unpacked; Lambda takes {MAX_BYTES:,}.",
            hint="Report this, with the versions of lakegate and Python.",
            bytes=total,
        )


def _zip(tree: Path, target: Path) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for path in _files(tree):
            entry = zipfile.ZipInfo(path.relative_to(tree).as_posix(), _TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # Unix, wherever it is built: Lambda reads the permissions
            entry.external_attr = (0o100755 if ".so" in path.name else 0o100644) << 16
            with path.open("rb") as source, archive.open(entry, "w") as packed:
                shutil.copyfileobj(source, packed, _BUFFER)


def _files(root: Path) -> list[Path]:
    """Return all files below ``root``, in the same order everywhere."""
    return sorted((path for path in root.rglob("*") if path.is_file()), key=lambda path: path.as_posix())


def _run(command: list[str], env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=False, capture_output=True, text=True, env=env)  # noqa: S603 - our own words
