"""Looking at what lies below paths, again and again, without opening a file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from lakegate.errors import InputError
from lakegate.sources import discover, from_uri, local, to_uri
from lakegate.sources.discovery import list_files
from lakegate.sources.files import LocalFile, stat_file


def write(path: Path, text: str = "a,b\n1,2\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def found(*paths: str | Path) -> list[str]:
    return [from_uri(file.uri) for file in list_files([str(path) for path in paths])]


def test_a_file_is_told_as_discovery_tells_it(tmp_path: Path) -> None:
    file = write(tmp_path / "10% é.csv")
    os.utime(file, ns=(1, 1_700_000_000_123_456_789))
    (looked_at,) = list_files([str(file)])
    (source,) = discover([str(file)]).files
    assert (looked_at.uri, looked_at.size_bytes, looked_at.stamp) == (source.uri, source.size_bytes, source.stamp)
    assert looked_at.modified_at == datetime(2023, 11, 14, 22, 13, 20, 123457, tzinfo=UTC)
    os.utime(file, ns=(1, 1))
    assert next(list_files([str(file)])).stamp != looked_at.stamp


def test_files_folders_globs_and_uris_each_file_once(tmp_path: Path) -> None:
    a, b, deep = write(tmp_path / "a.csv"), write(tmp_path / "b.parquet", "x"), write(tmp_path / "x/y/c.csv")
    write(tmp_path / "_hidden.csv")
    write(tmp_path / "x/notes.txt")
    assert found(tmp_path) == [str(a), str(b), str(deep)]
    assert found(f"{tmp_path}/**/*.csv") == [str(a), str(deep)]
    assert found(a, to_uri(a), tmp_path / "x", tmp_path) == [str(a), str(deep), str(b)]
    assert [file.uri for file in list_files([str(tmp_path)], format="parquet")] == [to_uri(b)]


def test_what_is_not_there_yet_is_not_listed(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "dangling.csv").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop.csv").symlink_to(tmp_path / "loop.csv")
    os.mkfifo(tmp_path / "pipe.csv")
    there = write(tmp_path / "there.csv")
    names = ["empty", "no/folder/", "missing.csv", "no*.csv", "dangling.csv", "loop.csv", "pipe.csv", "*.csv"]
    assert found(*(tmp_path / name for name in names)) == [str(there)]
    assert found("x" * 5000) == []


def test_what_vanishes_after_it_was_listed_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone, stays = write(tmp_path / "a.csv"), write(tmp_path / "b.csv")

    def vanishing(path: str, *rest: tuple[str, ...]) -> LocalFile | None:
        gone.unlink(missing_ok=True)
        return stat_file(path, *rest)

    monkeypatch.setattr(local, "stat_file", vanishing)
    assert found(tmp_path) == [str(stays)]


@pytest.mark.parametrize("path", ["", "a\0b", "gopher://bucket/a", "file://elsewhere/a", "~no-such-user-here/a"])
def test_what_cannot_be_a_path(path: str) -> None:
    with pytest.raises(InputError):
        list(list_files([path]))


def test_places_of_a_store_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new file of one table does not wait until a million of another are taken."""

    def present(path: str, *_: object) -> Iterator[SimpleNamespace]:
        for number in range(1_200 if path.endswith("/many/") else 1):
            name = f"{number}.csv"
            yield SimpleNamespace(
                name=name, found_uri=f"{path}{name}", size_bytes=1, stamp="s", modified_at=datetime.now(UTC)
            )

    monkeypatch.setattr("lakegate.sources.remote.present", present)

    found = [file.uri for file in list_files(["s3://bucket/many/", "s3://bucket/few/"])]

    assert found.index("s3://bucket/few/0.csv") == 500
    assert len(found) == len(set(found)) == 1_201
