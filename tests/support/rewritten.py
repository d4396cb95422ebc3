"""What each worker would else make before its first test in a new clone, made once, on all processors."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import pytest
from _pytest.assertion.rewrite import (
    PYC_TAIL,
    _rewrite_test,
    _write_pyc,
    assertstate_key,
    get_cache_dir,
    try_makedirs,
)
from hypothesis import strategies as st


def prepare(config: pytest.Config, files: Iterable[Path]) -> None:
    """Keep files of tests as pytest rewrites their assertions; with new ones, the characters of Hypothesis, too."""
    jobs: list[Callable[[], object]] = [partial(_rewrite, config, path) for path in files if not _is_kept(path)]
    if not jobs:
        return
    jobs.append(_characters)
    count = os.cpu_count() or 1
    children = []
    for number in range(count):
        child = os.fork()
        if child == 0:
            try:
                for job in jobs[number::count]:
                    job()
            finally:
                os._exit(0)  # who imports the file tells what is wrong with it
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


def _characters() -> None:
    """Have Hypothesis keep in a file what takes it seconds to find out."""
    with warnings.catch_warnings(action="ignore"):  # of work before the tests
        st.characters(codec="utf-8").validate()


def _rewrite(config: pytest.Config, path: Path) -> None:
    stat, code = _rewrite_test(path, config)
    if try_makedirs(get_cache_dir(path)):
        _write_pyc(config.stash[assertstate_key], code, stat, _kept(path))


def _kept(path: Path) -> Path:
    return get_cache_dir(path) / f"{path.stem}{PYC_TAIL}"


def _is_kept(path: Path) -> bool:
    kept = _kept(path)
    return kept.exists() and kept.stat().st_mtime >= path.stat().st_mtime
