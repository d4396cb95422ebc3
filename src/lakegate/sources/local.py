"""Resolve paths that the user typed (files, globs, folders, ``file://`` URIs) to local files."""

from __future__ import annotations

import glob
import itertools
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote_to_bytes

from lakegate.errors import InputError, SourceError
from lakegate.sources.files import (
    SPARK_GLOB_CHARACTERS,
    LocalFile,
    from_uri,
    is_ignored,
    partition_keys,
    path_of_uri,
    shown,
    stat_file,
    to_uri,
)
from lakegate.sources.listing import Wanted

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_ENCODED = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_CODECS = (".gz", ".bz2", ".zst", ".snappy", ".lz4", ".deflate", ".xz")
_GLOB_CHARACTERS = frozenset("*?[")


def resolve(paths: Sequence[str], wanted: Wanted) -> tuple[tuple[LocalFile, ...], list[InputError]]:
    """Return the files that ``paths`` name, each once and sorted by path, and the problems with the paths.

    A path that exists is used literally, even if it looks like a glob. Globs support ``*``, ``**``, ``?`` and ``[]``.
    Like Spark, folders and globs skip names that start with ``_`` or ``.``.

    Args:
        paths: Paths as typed: files, globs, folders, ``file:`` URIs. ``~`` is the home folder.
        wanted: Decides which files to read from folders.
    """
    found: dict[str, LocalFile] = {}
    problems: list[InputError] = []
    for text in paths:
        try:
            for file in _resolve_one(text, wanted, problems):
                known = found.get(file.uri)
                if known is None or file.path < known.path:
                    found[file.uri] = file
        except InputError as error:
            problems.append(type(error)(error.message, hint=error.hint, detail=error.detail, path=text))
        except (OSError, ValueError, RuntimeError) as error:
            problems.append(_unusable(text, error))
    files = tuple(sorted(found.values(), key=lambda file: file.path))
    problems.extend(problem for file in files for problem in _name_problems(file))
    return files, problems


def present(text: str, wanted: Wanted) -> Iterator[LocalFile]:
    """Yield the files that one path names as they are found, skipping missing ones.

    Args:
        text: As in :func:`resolve`.
        wanted: As in :func:`resolve`.
    """
    try:
        path = _interpret(text)[0]
        if Path(path).is_dir() and not os.access(path, os.R_OK | os.X_OK):
            message = f"Folder '{shown(path)}' can't be read: permission denied."
            raise SourceError(message, hint="Check its permissions.", path=path)
        yield from _resolve_one(text, wanted, [])
    except RuntimeError as error:  # '~name' of an unknown user
        raise _unusable(text, error) from error
    except OSError:  # the folder was deleted meanwhile, or the name is invalid
        return


def _resolve_one(text: str, wanted: Wanted, problems: list[InputError]) -> Iterator[LocalFile]:
    literal, pattern = _interpret(text)
    if os.path.lexists(literal):
        yield from _take(literal, wanted, problems, text)
        return
    if pattern is None:
        problems.append(SourceError(f"'{shown(text)}' doesn't exist.", hint="Check the path.", path=text))
        return
    # Path.glob doesn't support absolute patterns.
    found = glob.iglob(pattern, recursive=True)  # noqa: PTH207
    fixed = sum(1 for _ in itertools.takewhile(lambda part: not _GLOB_CHARACTERS & set(part), Path(pattern).parts))
    matches = sorted(match for match in found if not any(map(is_ignored, Path(match).parts[fixed:])))
    if not matches:
        hint = (
            "Check the pattern. Names that start with '_' or '.' never match. "
            "Quote it in the shell so that lakegate expands it."
        )
        problems.append(SourceError(f"No file matches '{shown(text)}'.", hint=hint, path=text))
    for match in matches:
        # `**` yields each folder and then its content. Reading the folders, too, would add files with other endings.
        if "**" not in pattern or not Path(match).is_dir():
            yield from _take(match, wanted, problems, text)


def _interpret(text: str) -> tuple[str, str | None]:
    """Return ``text`` as a literal path, and as a glob pattern if it may be one."""
    if not text:
        raise InputError(
            "An empty path isn't a file.", hint="Pass a file, a folder or a glob such as 'data/*.parquet'."
        )
    if "\0" in text:
        raise InputError("A path can't contain a NUL character.", hint="Check the path.")
    if text.lower().startswith("file:/"):
        raw = path_of_uri(text)
        pattern = "".join(_decoded_pattern(raw))
        return _absolute(from_uri(text)), _absolute(pattern) if _GLOB_CHARACTERS & set(raw) else None
    scheme = _SCHEME.match(text)
    if scheme is not None:
        raise InputError(
            f"'{text}' can't be read: {scheme[1]}:// isn't supported.",
            hint="Copy the files to this machine or to an object store, and pass that path (local paths, file://, "
            "s3://, gs:// and abfss:// work).",
            path=text,
        )
    path = _absolute(str(Path(text).expanduser()) if text.startswith("~") else text)
    return path, path if _GLOB_CHARACTERS & set(text) else None


def _decoded_pattern(raw: str) -> Iterator[str]:
    """Decode a URI's path to a pattern. Percent-encoded characters are literals, never wildcards."""
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


def _take(path: str, wanted: Wanted, problems: list[InputError], text: str) -> Iterator[LocalFile]:
    if Path(path).is_dir():
        yield from _take_folder(path, wanted, problems)
        return
    try:
        file = stat_file(path)
    except FileNotFoundError:
        message = f"'{shown(path)}' is a link to a file that doesn't exist."
        problems.append(SourceError(message, hint="Repair or remove the link.", path=text))
    except OSError as error:
        problems.append(_unusable(path, error))
    else:
        if file is not None:
            yield file
            return
        message = f"'{shown(path)}' isn't a regular file."
        problems.append(SourceError(message, hint="Pass a file, a folder or a glob.", path=text))


def _take_folder(folder: str, wanted: Wanted, problems: list[InputError]) -> Iterator[LocalFile]:
    before = len(problems)
    is_empty = True
    for path in _walk(folder, wanted, problems):
        if not wanted.may_take(Path(path).name):
            wanted.leave_out(to_uri(path))
            continue
        try:
            file = stat_file(path, partition_keys(Path(path).parent.relative_to(folder).parts))
        except OSError as error:
            problems.append(_unusable(path, error, hint="Repair it."))
            continue
        if file is not None and wanted.takes(file):
            is_empty = False
            yield file
        elif file is not None:
            wanted.leave_out(to_uri(path))
    if is_empty and len(problems) == before:
        plain = [suffix for suffix in wanted.suffixes if suffix.count(".") == 1]  # without the compressed variants
        endings = " or ".join(filter(None, (", ".join(plain[:-1]), plain[-1])))
        what = f"has no file that ends in {endings}" if any(Path(folder).iterdir()) else "is empty"
        problems.append(
            SourceError(
                f"Folder '{shown(folder)}' {what}.",
                hint="Check the path, or pass a glob and --format for files with other endings. Names that start with "
                "'_' or '.' are skipped.",
                path=folder,
            )
        )


def _walk(folder: str, wanted: Wanted, problems: list[InputError]) -> Iterator[str]:
    def note(error: OSError) -> None:
        where = shown(str(error.filename))
        message = f"Folder '{where}' can't be read: {_reason(error)}."
        problems.append(SourceError(message, hint="Check its permissions.", path=where))

    seen: set[str] = set()
    for current, folders, names in os.walk(folder, onerror=note, followlinks=True):
        real = os.path.realpath(current)
        if real in seen:  # a link that leads back up
            folders.clear()
            continue
        seen.add(real)
        for name in filter(is_ignored, (*folders, *names)):
            wanted.leave_out_hidden(str(Path(current) / name))
        folders[:] = sorted(name for name in folders if not is_ignored(name))
        yield from (str(Path(current) / name) for name in sorted(names) if not is_ignored(name))


def _name_problems(file: LocalFile) -> Iterator[SourceError]:
    path, real_name = shown(file.path), Path(file.real).name
    if is_ignored(real_name):
        link = "" if file.real == file.path else f" is a link to '{shown(file.real)}', which"
        yield SourceError(
            f"'{path}'{link} has a name that Spark skips as hidden or unfinished.",
            hint="Rename it, without '_' or '.' at the start or '._COPYING_' at the end.",
            path=path,
        )
    if _codec(real_name) != _codec(file.name):
        yield SourceError(
            f"'{path}' is a link to '{shown(file.real)}', whose file extension implies another compression. Spark "
            "uses the target's extension.",
            hint="Give both the same extension.",
            path=path,
        )
    if ":" in file.real and SPARK_GLOB_CHARACTERS & set(file.real):
        message = f"'{path}' has both a ':' and one of *?[]{{}}\\ in its path, which Spark can't read."
        yield SourceError(message, hint="Rename the file or folder.", path=path)
    try:
        file.real.encode()
    except UnicodeEncodeError:
        message = f"The name of '{path}' isn't UTF-8. Spark can't read such files."
        yield SourceError(message, hint="Rename the file or folder.", path=path)


def _codec(name: str) -> str:
    ending = Path(name).suffix.lower()
    return ending if ending in _CODECS else ""


def _unusable(path: str, error: Exception, hint: str = "Check the path.") -> SourceError:
    return SourceError(f"'{shown(path)}' can't be accessed: {_reason(error)}.", hint=hint, path=path)


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) and error.strerror else str(error)).rstrip(".")
