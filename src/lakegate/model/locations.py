"""One spelling for all paths of the same file."""

from __future__ import annotations

import os
import re
from posixpath import normpath

_ALIASES = {"s3a": "s3", "s3n": "s3", "abfs": "abfss", "wasb": "abfss", "wasbs": "abfss"}
"""Schemes that other programs write for the same objects."""


def canonical(location: str) -> str:
    """Return one spelling for all paths of the same file.

    Example:
        >>> canonical("file:///lake//t"), canonical("/lake/t"), canonical("s3a://bucket/t/")
        ('file:/lake/t', 'file:/lake/t', 's3:/bucket/t')
        >>> canonical("file:/lake/x/../t")  # in an object's key, dots mean nothing
        'file:/lake/t'
        >>> canonical("abfs://lake@ACME.dfs.core.windows.net/t"), canonical("wasbs://lake@acme.blob.core.windows.net/t")
        ('abfss:/lake@acme.dfs.core.windows.net/t', 'abfss:/lake@acme.dfs.core.windows.net/t')
    """
    scheme, colon, rest = location.partition(":")
    scheme = scheme.lower()
    if not colon or "/" in scheme:
        scheme, rest = "file", location
    elif scheme == "file":
        rest = rest.removeprefix("//localhost")
    scheme = _ALIASES.get(scheme, scheme)
    if scheme == "file" and "/." in rest:
        rest = normpath(rest)
    elif scheme == "abfss":
        account, slash, key = rest.lstrip("/").partition("/")
        rest = f"/{account.lower().replace('.blob.', '.dfs.')}{slash}{key}"
    return f"{scheme}:{re.sub('/+', '/', rest)}".rstrip("/")


def resolved(location: str) -> str:
    """Return a canonical path without links and dots, because some object stores resolve dots in keys.

    Example:
        >>> resolved("s3://bucket/a/../t/./data/f")
        's3:/bucket/t/data/f'
    """
    scheme, _, path = canonical(location).partition(":")
    if scheme == "file":
        return f"{scheme}:{os.path.realpath(path)}"
    return f"{scheme}:{normpath(path)}" if "/." in path else f"{scheme}:{path}"
