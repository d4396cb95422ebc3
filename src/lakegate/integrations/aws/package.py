"""Build the function's zip: lakegate and the packages that it needs for Spark Connect, without a JVM."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.metadata import distribution
from pathlib import Path
from typing import Literal

import lakegate
from lakegate.contracts.store import FOLDER, is_contract
from lakegate.errors import ConfigurationError, RetryableError, missing_package

Architecture = Literal["x86_64", "arm64"]

MAX_BYTES = 262_144_000
"""AWS's limit for a function's unpacked size: https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html."""
_FORMAT = 2
"""Raise it when the same input must produce a different zip."""
_SETTINGS = "lakegate.toml"
_LOCK = Path(__file__).with_name("function.lock")
_EXCLUDE = Path(__file__).with_name("function.exclude")
_PLATFORMS: dict[Architecture, str] = {"x86_64": "x86_64-manylinux_2_28", "arm64": "aarch64-manylinux_2_28"}
_LEFT_OUT = ("cli/", "integrations/aws/", "integrations/dbos/", "integrations/prefect/", "testing/")
_METADATA = ("METADATA", "entry_points.txt")
_TIME = (1980, 1, 1, 0, 0, 0)
_COMPRESSION = zipfile.ZIP_DEFLATED
_BUFFER = 1 << 20


@dataclass(frozen=True, slots=True)
class FunctionPackage:
    """What to put into the function's zip, and for which Lambda runtime.

    Attributes:
        python: Lambda's Python version: ``3.12``.
        settings: The ``lakegate.toml`` to include, if any.
        contracts: The folder with the contracts to include, if any.
    """

    python: str = "3.12"
    architecture: Architecture = "x86_64"
    settings: Path | None = None
    contracts: Path | None = None

    @property
    def contract_files(self) -> tuple[Path, ...]:
        """The contracts' files, sorted by name."""
        folder = self.contracts
        found = folder.iterdir() if folder is not None and folder.is_dir() else ()
        return tuple(sorted(filter(is_contract, found)))


def build_package(folder: Path, wanted: FunctionPackage) -> Path:
    """Build the function's zip in ``folder``, unless the same one exists.

    The same lakegate, lock file, settings and interpreter produce the same bytes. If this machine has the wanted
    version of Python, the zip contains the packages' bytecode instead of their source, for a faster first start.

    Raises:
        ConfigurationError: If uv isn't installed, or there are no wheels for this Python version and CPU.
        RetryableError: If the package index doesn't answer.
    """
    interpreter = _interpreter(wanted.python)
    zipped = folder / f"function-{_digest(wanted, interpreter)[:16]}.zip"
    if zipped.is_file():
        return zipped
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix="build-") as scratch:
        tree = Path(scratch, "tree")
        _install(Path(scratch, "installed"), tree, wanted)
        _add_lakegate(tree, wanted)
        if interpreter is not None:
            _compile(tree, interpreter)
        unfinished = Path(scratch, "function.zip")
        zip_folder(tree, unfinished)
        unfinished.replace(zipped)
    return zipped


def unpacked_bytes(package: Path) -> int:
    """Return the unpacked size of a zip, which Lambda limits."""
    with zipfile.ZipFile(package) as archive:
        return sum(entry.file_size for entry in archive.infolist())


def require_fit(package: Path, limit: int = MAX_BYTES) -> None:
    """Raise if a zip is too large for Lambda, with its largest packages."""
    total = unpacked_bytes(package)
    if total > limit:
        sizes: Counter[str] = Counter()
        with zipfile.ZipFile(package) as archive:
            for entry in archive.infolist():
                # numpy.libs and numpy-2.4.dist-info are numpy's.
                sizes[re.split(r"[/.-]", entry.filename, maxsplit=1)[0]] += entry.file_size
        parts = ", ".join(f"{name} {size:,}" for name, size in sizes.most_common(10))
        raise ConfigurationError(
            f"The function has {total:,} bytes unpacked, {total - limit:,} more than Lambda accepts in a zip. The "
            f"largest packages: {parts}.",
            hint="Deploy it as a container image, which may be larger: lakegate aws deploy --package image",
            bytes=total,
        )


def settings_in(package: Path) -> bytes | None:
    """Return the ``lakegate.toml`` in a zip; ``None`` if there is none."""
    with zipfile.ZipFile(package) as archive:
        return archive.read(_SETTINGS) if _SETTINGS in archive.namelist() else None


_LACKING = {"snowflake": "Snowflake's connector", "openlineage": "OpenLineage's client"}
"""Types of downstream systems whose packages aren't in the function's zip."""


def lacking_in_function(settings: Path | None) -> tuple[str, ...]:
    """Return notes about what the ``lakegate.toml`` in the function's zip needs, but the zip lacks."""
    if settings is None:
        return ()
    try:
        found = tomllib.loads(settings.read_text(encoding="utf-8-sig"))
    except ValueError:
        return ()  # every command reports the invalid file, and so does the function's log
    systems = {
        name: system.get("type") for name, system in found.get("downstream", {}).items() if isinstance(system, dict)
    }
    if "openlineage" in found:
        systems["openlineage"] = "openlineage"
    return tuple(
        f"The function comes without {_LACKING[kind]}: it queues events for '{name}' and sends none. "
        f"Where lakegate[{kind}] is installed, with these settings, send it on a schedule: "
        f"lakegate downstream retry {name}"
        for name, kind in systems.items()
        if kind in _LACKING
    )


def contracts_in(package: Path) -> dict[str, str]:
    """Return the contracts in a zip: their texts by file name."""
    with zipfile.ZipFile(package) as archive:
        names = [name for name in archive.namelist() if name.startswith(f"{FOLDER}/")]
        return {name.removeprefix(f"{FOLDER}/"): archive.read(name).decode() for name in names}


def _uv() -> str:
    try:
        from uv import find_uv_bin
    except ImportError as error:
        raise missing_package("Building the function needs", "uv", "aws") from error
    return find_uv_bin()


def _interpreter(python: str) -> tuple[str, str] | None:
    """Return an interpreter of this version, and its ``sys.version``; ``None`` if this machine has none."""
    if python == f"{sys.version_info[0]}.{sys.version_info[1]}":
        return sys.executable, sys.version
    found = _run([_uv(), "python", "find", "--no-python-downloads", "--no-project", "--system", python])
    if found.returncode:
        return None
    path = found.stdout.strip()
    printed = _run([path, "-c", "import sys; print(sys.version)"])
    return None if printed.returncode else (path, printed.stdout)


def _digest(wanted: FunctionPackage, interpreter: tuple[str, str] | None) -> str:
    digest = hashlib.sha256()
    settings = wanted.settings.read_bytes() if wanted.settings else b""
    facts = (str(_FORMAT), wanted.python, wanted.architecture, interpreter[1] if interpreter else "")
    inputs = (path.read_bytes() for path in (_LOCK, _EXCLUDE, Path(__file__)))
    for part in (*(fact.encode() for fact in facts), settings, *inputs):
        digest.update(hashlib.sha256(part).digest())
    for path in wanted.contract_files:
        digest.update(path.name.encode() + file_sha256(path))
    for name, path in _lakegate_files():
        digest.update(name.encode() + file_sha256(path))
    return digest.hexdigest()


def _install(installed: Path, tree: Path, wanted: FunctionPackage) -> None:
    command = [_uv(), "pip", "install", "--quiet", "--no-config", "--no-python-downloads", "--require-hashes"]
    command += ["--no-deps", "--target", str(installed), "--python-version", wanted.python]
    command += ["--python-platform", _PLATFORMS[wanted.architecture], "--python", sys.executable]
    # Spark's client is published only as source; it's pure Python.
    command += ["--only-binary", ":all:", "--no-binary", "pyspark-client", "--requirements", str(_LOCK)]
    done = _run(command)
    if done.returncode:
        raise _install_error(done.stderr, wanted)
    for path in _files(installed):
        name = path.relative_to(installed).as_posix()
        if is_needed(name):
            target = tree / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(path, target)
            if ".so" in target.name:
                strip_symbols(target)


def _install_error(output: str, wanted: FunctionPackage) -> ConfigurationError | RetryableError:
    last = " ".join(output.split())[-400:]
    message = f"Couldn't get the function's packages for Python {wanted.python} on {wanted.architecture}: "
    if "No solution found" in output:
        return ConfigurationError(message + last, hint="Choose another --python-version or --architecture.")
    return RetryableError(message + last, hint="Check the network and the package index, and try again.")


def _lakegate_files() -> Iterator[tuple[str, Path]]:
    root = Path(lakegate.__file__).parent
    for path in _files(root):
        name = path.relative_to(root).as_posix()
        if "__pycache__/" not in name and not name.startswith(_LEFT_OUT):
            yield f"lakegate/{name}", path


def _add_lakegate(tree: Path, wanted: FunctionPackage) -> None:
    for name, path in _lakegate_files():
        target = tree / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    installed = distribution("lakegate")
    folder = tree / f"lakegate-{installed.version}.dist-info"
    folder.mkdir()
    for name in _METADATA:
        (folder / name).write_text(installed.read_text(name) or "", encoding="utf-8")
    if wanted.settings is not None:
        shutil.copyfile(wanted.settings, tree / _SETTINGS)
    for path in wanted.contract_files:
        (tree / FOLDER).mkdir(exist_ok=True)
        shutil.copyfile(path, tree / FOLDER / path.name)


def _compile(tree: Path, interpreter: tuple[str, str]) -> None:
    """Replace the packages' source with bytecode, and add it to lakegate's own source, which tracebacks show."""
    program = (
        "import compileall, py_compile, re, sys\n"
        "unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH\n"
        "own, others = sys.argv[1:3]\n"
        "given = {'quiet': 2, 'invalidation_mode': unchecked, 'stripdir': others, 'prependdir': '/var/task'}\n"
        "compileall.compile_dir(own, **given)\n"
        "compileall.compile_dir(others, rx=re.compile(re.escape(own)), legacy=True, **given)\n"
    )
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    _run([interpreter[0], "-c", program, str(tree / "lakegate"), str(tree)], env={**clean, "PYTHONHASHSEED": "0"})
    for path in _files(tree):
        if path.suffix == ".py" and path.with_suffix(".pyc").is_file():
            path.unlink()


def zip_folder(tree: Path, target: Path) -> None:
    """Zip all files below ``tree``. The same files produce the same bytes. ``target`` may be inside ``tree``."""
    files = _files(tree)
    with zipfile.ZipFile(target, "w") as archive:
        for path in files:
            entry = zipfile.ZipInfo(path.relative_to(tree).as_posix(), _TIME)
            entry.compress_type = _COMPRESSION
            entry.create_system = 3  # always Unix, so that Lambda reads the permissions
            entry.external_attr = (0o100755 if ".so" in path.name else 0o100644) << 16
            with path.open("rb") as source, archive.open(entry, "w") as packed:
                shutil.copyfileobj(source, packed, _BUFFER)


def _files(root: Path) -> list[Path]:
    """Return all files below ``root``, in the same order on every system."""
    return sorted((path for path in root.rglob("*") if path.is_file()), key=lambda path: path.as_posix())


def file_sha256(path: Path) -> bytes:
    """Return the SHA-256 digest of a file."""
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").digest()


def _run(command: list[str], env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=False, capture_output=True, text=True, env=env)


_ELF64 = b"\x7fELF\x02\x01"
_SECTIONS_AT, _SECTION_COUNT_AT = 40, 60
"""Offsets in an ELF header: of the section header table's position, and of its size (System V ABI, chapter 4)."""

_BOTOCORE_DATA = "botocore/data/"
_BOTOCORE_SERVICES = frozenset({"glue", "s3", "secretsmanager", "sqs", "sso", "sso-oidc", "sts"})
"""The services that the function uses. botocore describes 400 services in 30 MB."""


def is_needed(path: str) -> bool:
    """Return whether a file of the installed packages goes into the function.

    Args:
        path: Relative to the folder that the packages are installed in, with ``/``.

    Example:
        >>> is_needed("pyarrow/libarrow.so.2600"), is_needed("pyarrow/libarrow_flight.so.2600")
        (True, False)
        >>> is_needed("botocore/data/endpoints.json"), is_needed("botocore/data/ec2/2016-11-15/service-2.json.gz")
        (True, False)
    """
    if path.startswith(_BOTOCORE_DATA):
        service, below, _ = path.removeprefix(_BOTOCORE_DATA).partition("/")
        return not below or service in _BOTOCORE_SERVICES
    return not any(fnmatchcase(path, pattern) for pattern in _excluded())


@cache
def _excluded() -> tuple[str, ...]:
    lines = _EXCLUDE.read_text(encoding="utf-8").splitlines()
    return tuple(line for line in lines if not line.startswith("#"))


def strip_symbols(library: Path) -> int:
    """Strip symbols and debug information from a shared library; return the bytes saved.

    The loader reads only segments, which stay unchanged. Sections are for linkers and debuggers; they make up a third
    of Arrow's library and nine tenths of zstandard's. Other kinds of files are left alone.
    """
    content = library.read_bytes()
    if not content.startswith(_ELF64):
        return 0
    end = _end_of_segments(content)
    if end >= len(content):
        return 0
    kept = bytearray(content[:end])
    kept[_SECTIONS_AT : _SECTIONS_AT + 8] = bytes(8)
    kept[_SECTION_COUNT_AT : _SECTION_COUNT_AT + 4] = bytes(4)
    library.unlink()  # never write in place: the file is linked to uv's cache, and so to other environments
    library.write_bytes(kept)
    return len(content) - end


def _end_of_segments(content: bytes) -> int:
    [headers_at] = struct.unpack_from("<Q", content, 32)
    size, count = struct.unpack_from("<HH", content, 54)
    end = int(headers_at + size * count)
    for number in range(count):
        offset, _, _, length = struct.unpack_from("<QQQQ", content, headers_at + size * number + 8)
        end = max(end, offset + length)
    return end
