"""From what the user typed (files, globs, folders, ``file://`` URIs) to files, and from files to URIs and back."""

from __future__ import annotations

import glob
import hashlib
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BufferedReader
from pathlib import Path
from urllib.parse import quote, unquote_to_bytes

from lakegate.errors import InputError, SourceError
from lakegate.sources.problems import Problem

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_FILE_URI = re.compile(r"file:(?://(?:localhost)?(?=/)|(?=/(?!/)))", re.IGNORECASE)
_ENCODED = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_PARTITION_FOLDER = re.compile(r"([^=/]+)=[^/]*")
_GLOB_CHARACTERS = frozenset("*?[")
SPARK_GLOB_CHARACTERS = frozenset("*?[]{}\\")
"""What Spark takes for part of a pattern, unless it is escaped."""


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A regular file as it stood when it was found.

    Attributes:
        path: Absolute path, symbolic links not followed.
        size_bytes: Length in bytes.
        mtime_ns: Time of the last change, in nanoseconds since the epoch.
        identity: Device and inode: the same for all names of one file.
        partition_keys: The ``key`` of each ``key=value`` folder between the folder asked for and the file.
    """

    path: str
    size_bytes: int
    mtime_ns: int
    identity: tuple[int, int]
    partition_keys: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Last part of the path."""
        return Path(self.path).name

    @property
    def uri(self) -> str:
        """The file's URI; see :func:`to_uri`."""
        return to_uri(self.path)

    @property
    def modified_at(self) -> datetime:
        """Time of the last change, in UTC."""
        return datetime.fromtimestamp(self.mtime_ns / 1e9, tz=UTC)

    @property
    def stamp(self) -> str:
        """Size and time of the last change as text, ``<bytes>-<nanoseconds>``: stable while the file is not written.

        Example:
            >>> LocalFile("/x", 12, 1_700_000_000_000_000_000, (1, 2)).stamp
            '12-1700000000000000000'
        """
        return f"{self.size_bytes}-{self.mtime_ns}"

    @property
    def version_id(self) -> None:
        """There is none."""
        return

    def open(self) -> BufferedReader:
        """Open it for reading; see :meth:`~lakegate.sources.located.Located.open`."""
        return Path(self.path).open("rb")

    def content_version(self) -> str:
        """Return the SHA-256 of its bytes: size and time alone would take a file that was copied anew for another."""
        with self.open() as stream:
            return f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"

    def stamp_now(self) -> str | None:
        """Return the stamp as it is now; ``None`` when the file is gone or cannot be looked at."""
        return stamp_now(self.path)


def to_uri(path: str | Path) -> str:
    """Return the ``file://`` URI of an absolute path (RFC 8089).

    The path's UTF-8 bytes are percent-encoded, all but ASCII letters, digits, ``_.-~`` and ``/``. So a URI is plain
    ASCII without spaces, quotes or glob characters, and :func:`from_uri` gives the very same path back.

    Example:
        >>> to_uri("/data/10% off/é#1 [a].csv")
        'file:///data/10%25%20off/%C3%A9%231%20%5Ba%5D.csv'
    """
    return "file://" + quote(os.fsencode(path), safe="/")


def from_uri(uri: str) -> str:
    """Return the path that a ``file:`` URI names.

    Args:
        uri: ``file:///path``, ``file:/path`` or ``file://localhost/path``, percent-encoded.

    Raises:
        InputError: When it is no ``file:`` URI of this machine.

    Example:
        >>> from_uri("file:///data/10%25%20off/%C3%A9%231%20%5Ba%5D.csv")
        '/data/10% off/é#1 [a].csv'
    """
    return os.fsdecode(unquote_to_bytes(_path_of_uri(uri)))


def _path_of_uri(uri: str) -> str:
    match = _FILE_URI.match(uri)
    if match is None:
        raise InputError(f"'{uri}' is not the URI of a file here.", hint="Write it as file:///absolute/path.", path=uri)
    return uri[match.end() :]


def resolve(paths: Sequence[str], suffixes: Sequence[str]) -> tuple[tuple[LocalFile, ...], tuple[Problem, ...]]:
    """Return the files that ``paths`` name, each once and sorted by path, and what is wrong with the paths.

    A path that exists is taken as it is, even when it looks like a glob. Globs know ``*``, ``**``, ``?`` and ``[]``.
    Folders, and the matches of globs, leave out what Spark leaves out: names that start with ``_`` or ``.``.

    Args:
        paths: As typed: files, globs, folders, ``file:`` URIs; ``~`` is the home folder.
        suffixes: Lower-case endings of the files to take from folders.
    """
    found: dict[tuple[int, int], LocalFile] = {}
    problems: list[Problem] = []
    for text in paths:
        try:
            for file in _resolve_one(text, suffixes, problems):
                known = found.get(file.identity)
                if known is None or file.path < known.path:
                    found[file.identity] = file
        except InputError as error:
            problems.append(Problem(error.message, error.hint, text, type(error)))
        except (OSError, ValueError, RuntimeError) as error:
            problems.append(Problem(f"'{shown(text)}' cannot be looked at: {_reason(error)}.", "Check the path.", text))
    files = tuple(sorted(found.values(), key=lambda file: file.path))
    problems.extend(problem for file in files for problem in _name_problems(file))
    return files, tuple(problems)


def present(text: str, suffixes: Sequence[str]) -> Iterator[LocalFile]:
    """Yield the files that one path names as they are found; what is not there, or vanishes meanwhile, is left out.

    Args:
        text: As in :func:`resolve`.
        suffixes: As in :func:`resolve`.

    Raises:
        InputError: When it cannot be a path.
        SourceError: When it is a folder that cannot be read.
    """
    try:
        _require_readable(_interpret(text)[0])
        yield from _resolve_one(text, suffixes, [])
    except RuntimeError as error:  # nobody knows whose home '~name' is
        raise SourceError(f"'{shown(text)}' cannot be looked at: {_reason(error)}.", hint="Check the path.") from error
    except OSError:  # a folder that is gone by now, or a name that no file can have
        return


def shown(path: str) -> str:
    """Return ``path`` so that it can be printed even when its bytes are no UTF-8."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def stat_file(path: str, partition_keys: tuple[str, ...] = ()) -> LocalFile | None:
    """Return the file as it stands now, ``None`` when it is not a regular file.

    Raises:
        OSError: When it cannot be looked at.
    """
    status = Path(path).stat()
    if not stat.S_ISREG(status.st_mode):
        return None
    return LocalFile(path, status.st_size, status.st_mtime_ns, (status.st_dev, status.st_ino), partition_keys)


def stamp_now(path: str) -> str | None:
    """Return the stamp of a file as it is now; ``None`` when it is gone or cannot be looked at."""
    try:
        found = stat_file(path)
    except OSError:
        return None
    return None if found is None else found.stamp


def partition_keys(folders: Sequence[str]) -> tuple[str, ...]:
    """Return the ``key`` of each of ``folders`` that is named ``key=value``.

    Example:
        >>> partition_keys(("day=1", "raw", "hour=07"))
        ('day', 'hour')
    """
    return tuple(match[1] for folder in folders if (match := _PARTITION_FOLDER.fullmatch(folder)))


def is_ignored(name: str) -> bool:
    """Tell whether Spark would leave out a file or folder of this name.

    The rule is that of ``HadoopFSUtils.shouldFilterOutPathName``: leading ``.``, leading ``_`` without a ``=``
    (``_SUCCESS``, ``_temporary``), and copies in progress.
    """
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_")


def _resolve_one(text: str, suffixes: Sequence[str], problems: list[Problem]) -> Iterator[LocalFile]:
    literal, pattern = _interpret(text)
    if os.path.lexists(literal):
        yield from _take(literal, suffixes, problems, text)
        return
    if pattern is None:
        problems.append(Problem(f"'{shown(text)}' does not exist.", "Check the path.", text))
        return
    # Path.glob takes no absolute pattern
    found = glob.iglob(pattern, recursive=True)  # noqa: PTH207
    matches = sorted(match for match in found if not _ignored_below(match, pattern))
    if not matches:
        problems.append(
            Problem(
                f"No file matches '{shown(text)}'.",
                "Check the pattern; names that start with '_' or '.' never match. "
                "Quote it in the shell so that lakegate expands it.",
                text,
            )
        )
    folders_too = "**" not in pattern
    for match in matches:
        # `**` yields each folder and then what is in it; taking folders too would bring in files of other endings
        if not folders_too and Path(match).is_dir():
            continue
        yield from _take(match, suffixes, problems, text)


def _require_readable(path: str) -> None:
    if Path(path).is_dir() and not os.access(path, os.R_OK | os.X_OK):
        raise SourceError(
            f"Folder '{shown(path)}' cannot be read: permission denied.", hint="Check its permissions.", path=path
        )


def _interpret(text: str) -> tuple[str, str | None]:
    """Return the path that ``text`` literally is, and the glob pattern it may be instead."""
    if not text:
        raise InputError(
            "An empty path names no file.", hint="Give a file, a folder or a glob such as 'data/*.parquet'."
        )
    if "\0" in text:
        raise InputError("A path cannot hold a NUL character.", hint="Check the path.")
    if text.lower().startswith("file:/"):
        raw = _path_of_uri(text)
        pattern = "".join(_decoded_pattern(raw))
        return _absolute(from_uri(text)), _absolute(pattern) if _GLOB_CHARACTERS & set(raw) else None
    scheme = _SCHEME.match(text)
    if scheme is not None:
        raise InputError(
            f"'{text}' cannot be read: {scheme[1]}:// is not supported.",
            hint="Copy the files to this machine or to an object store, and give their path (local paths, file://, "
            "s3://, gs:// and abfss:// work).",
            path=text,
        )
    path = _absolute(str(Path(text).expanduser()) if text.startswith("~") else text)
    return path, path if _GLOB_CHARACTERS & set(text) else None


def _decoded_pattern(raw: str) -> Iterator[str]:
    """Decode a URI's path; what was percent-encoded stands for itself in the pattern, never for a wildcard."""
    end = 0
    for match in _ENCODED.finditer(raw):
        yield raw[end : match.start()]
        yield glob.escape(os.fsdecode(unquote_to_bytes(match[0])))
        end = match.end()
    yield raw[end:]


def _absolute(path: str) -> str:
    folder, name = os.path.split(path)
    # `link/..` is the parent of the link's target, which abspath would get wrong
    if ".." in Path(folder).parts and not _GLOB_CHARACTERS & set(folder):
        return os.path.normpath(Path(os.path.realpath(folder)) / name)
    return os.path.normpath(Path(path).absolute())


def _ignored_below(match: str, pattern: str) -> bool:
    """Tell whether a part of ``match`` that the pattern left open is one that Spark ignores."""
    fixed = sum(1 for _ in _fixed_parts(pattern))
    return any(is_ignored(part) for part in Path(match).parts[fixed:])


def _fixed_parts(pattern: str) -> Iterator[str]:
    for part in Path(pattern).parts:
        if _GLOB_CHARACTERS & set(part):
            return
        yield part


def _take(path: str, suffixes: Sequence[str], problems: list[Problem], text: str) -> Iterator[LocalFile]:
    if Path(path).is_dir():
        yield from _take_folder(path, suffixes, problems)
        return
    try:
        file = stat_file(path)
    except FileNotFoundError:
        problems.append(
            Problem(f"'{shown(path)}' is a link to a file that does not exist.", "Repair or remove the link.", text)
        )
        return
    except OSError as error:
        problems.append(Problem(f"'{shown(path)}' cannot be looked at: {_reason(error)}.", "Check the path.", text))
        return
    if file is None:
        problems.append(Problem(f"'{shown(path)}' is not a regular file.", "Give a file, a folder or a glob.", text))
        return
    yield file


def _take_folder(folder: str, suffixes: Sequence[str], problems: list[Problem]) -> Iterator[LocalFile]:
    before = len(problems)
    anything = False
    for path in _walk(folder, problems):
        if not path.lower().endswith(tuple(suffixes)):
            continue
        anything = True
        try:
            file = stat_file(path, partition_keys(Path(path).parent.relative_to(folder).parts))
        except OSError as error:
            problems.append(Problem(f"'{shown(path)}' cannot be looked at: {_reason(error)}.", "Repair it.", path))
            continue
        if file is not None:
            yield file
    if not anything and len(problems) == before:
        what = "is empty" if not any(Path(folder).iterdir()) else f"holds no file that ends in {_or(suffixes)}"
        problems.append(
            Problem(
                f"Folder '{shown(folder)}' {what}.",
                "Check the path, or name files of other endings by a glob together with --format. "
                "Names that start with '_' or '.' are left out.",
                folder,
            )
        )


def _walk(folder: str, problems: list[Problem]) -> Iterator[str]:
    def unreadable(error: OSError) -> None:
        where = shown(str(error.filename))
        problems.append(Problem(f"Folder '{where}' cannot be read: {_reason(error)}.", "Check its permissions.", where))

    seen: set[str] = set()
    for current, folders, names in os.walk(folder, onerror=unreadable, followlinks=True):
        real = os.path.realpath(current)
        if real in seen:  # a link that leads back up
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not is_ignored(name))
        yield from (str(Path(current) / name) for name in sorted(names) if not is_ignored(name))


def _name_problems(file: LocalFile) -> Iterator[Problem]:
    path = shown(file.path)
    if is_ignored(file.name):
        yield Problem(
            f"'{path}' has a name that Spark takes for a hidden or unfinished file, and skips.",
            "Rename it: no leading '_' or '.', no '._COPYING_' at the end.",
            path,
        )
    if ":" in file.path and SPARK_GLOB_CHARACTERS & set(file.path):
        yield Problem(
            f"'{path}' holds a ':' together with one of *?[]{{}}\\ , which Spark cannot read.",
            "Rename the file or folder.",
            path,
        )
    try:
        file.path.encode()
    except UnicodeEncodeError:
        yield Problem(f"'{path}' is not a UTF-8 name, which Spark cannot read.", "Rename the file or folder.", path)


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) and error.strerror else str(error)).rstrip(".")


def _or(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
