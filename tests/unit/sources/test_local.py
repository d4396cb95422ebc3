"""What the user typed becomes files, and files become URIs and come back."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakegate.errors import InputError, SourceError
from lakegate.sources import changed_files, discover, from_uri, to_uri
from lakegate.sources.files import LocalFile
from lakegate.sources.listing import Wanted
from lakegate.sources.local import resolve

CSV = "a,b\n1,2\n"
_TICK_S = 0.02
"""Longer than the file system's clock takes to advance."""


def write(path: Path, text: str = CSV) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def found(*paths: str) -> list[str]:
    files, problems = resolve(paths, Wanted(None))
    assert problems == []
    return [file.path for file in files]


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1))
def test_a_uri_gives_its_path_back(path: str) -> None:
    uri = to_uri("/" + path)
    assert uri.isascii()
    assert not set(uri) & set(" *?[]{}\"'\\#")
    assert from_uri(uri) == "/" + path


@pytest.mark.parametrize("name", ["a b", "a%20b", "a+b", "a#b", "日本", "x[1]", "x{a}", "a*b", "a?b", "a\\b", "50%"])
def test_odd_names_are_found_literally_and_by_uri(tmp_path: Path, name: str) -> None:
    file = write(tmp_path / f"{name}.csv")
    write(tmp_path / "x1.csv")
    assert found(str(file)) == [str(file)]
    assert found(to_uri(file)) == [str(file)]
    batch = discover([to_uri(file)])
    assert [from_uri(uri) for uri in batch.uris] == [str(file)]


def test_globs(tmp_path: Path) -> None:
    a, b, deep = write(tmp_path / "a.csv"), write(tmp_path / "b.csv"), write(tmp_path / "x/y/c.csv")
    write(tmp_path / "_hidden.csv")
    write(tmp_path / "x/_temporary/0.csv")
    write(tmp_path / "x/notes.txt")
    assert found(f"{tmp_path}/*.csv") == [str(a), str(b)]
    assert found(f"{tmp_path}/[b-z].csv") == [str(b)]
    assert found(f"{tmp_path}/?.csv") == [str(a), str(b)]
    assert found(f"{tmp_path}/**/*.csv") == [str(a), str(b), str(deep)]
    assert found(f"{tmp_path}/x*") == [str(deep)]


def test_a_folder_is_searched_to_the_bottom_without_what_spark_ignores(tmp_path: Path) -> None:
    keep = [write(tmp_path / name) for name in ("a.csv", "B.CSV", "deep/er/c.csv")]
    for name in ("_SUCCESS", ".hidden.csv", "_x.csv", "_temporary/0/d.csv", ".git/e.csv", "readme.txt"):
        write(tmp_path / name)
    (tmp_path / "deep" / "loop").symlink_to(tmp_path)
    assert found(str(tmp_path)) == sorted(map(str, keep))


def test_each_file_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path / "a.csv")
    (tmp_path / "latest.csv").symlink_to(file)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert found(str(tmp_path), "a.csv", "./a.csv", "~/a.csv", to_uri(file), "*.csv", "latest.csv") == [str(file)]


def test_dot_dot_after_a_link_is_the_parent_of_its_target(tmp_path: Path) -> None:
    file = write(tmp_path / "real/a.csv")
    (tmp_path / "real/sub").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real/sub")
    assert found(f"{tmp_path}/link/../a.csv") == [str(file)]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("ftp://bucket/a.parquet", "ftp:// isn't supported"),
        ("https://example.org/a.csv", "https:// isn't supported"),
        ("file://elsewhere/a.csv", "isn't the URI of a local file"),
        ("", "empty path"),
        ("a\0b", "NUL"),
    ],
)
def test_paths_that_cannot_be_used(path: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        discover([path])
    assert caught.value.hint


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    write(tmp_path / "other/readme.txt")
    write(tmp_path / "zero.csv", "")
    write(tmp_path / "_x.csv")
    (tmp_path / "dangling.csv").symlink_to(tmp_path / "nowhere")
    names = ["missing.csv", "no*.csv", "empty", "other", "zero.csv", "_x.csv", "dangling.csv"]
    with pytest.raises(SourceError, match="7 problems") as caught:
        discover([str(tmp_path / name) for name in names])
    message = caught.value.message
    for words in (
        "missing.csv' doesn't exist",
        "No file matches",
        "empty' is empty",
        "other' has no file that ends in .parquet, .parq, .pq, .csv, .tsv, .json, .jsonl",
        "zero.csv' is empty (0 bytes)",
        "_x.csv' has a name that Spark skips as hidden",
        "link to a file that doesn't exist",
    ):
        assert words in message


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable(tmp_path: Path) -> None:
    write(tmp_path / "a.csv").chmod(0)
    with pytest.raises(SourceError, match=r"can't be read: Permission denied"):
        discover([str(tmp_path / "a.csv")])


def test_names_that_spark_cannot_read(tmp_path: Path) -> None:
    write(tmp_path / "10:00 [1].csv")
    with pytest.raises(SourceError, match="which Spark can't read"):
        discover([str(tmp_path / "10:00 [1].csv")])
    assert discover([str(write(tmp_path / "10:00.csv"))]).rows == 1


def test_values_in_folder_names_are_not_lost_silently(tmp_path: Path) -> None:
    write(tmp_path / "day=1/a.csv")
    write(tmp_path / "day=2/b.csv")
    with pytest.raises(InputError, match="the file has no column 'day'"):
        discover([str(tmp_path)])
    assert discover([f"{tmp_path}/**/*.csv"]).rows == 2


def test_the_version_changes_with_the_content_and_the_stamp_with_a_touch(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv")
    batch = discover([str(file)], copies=tmp_path / "copies")
    before = batch.files[0]
    assert before == discover([str(file)], copies=tmp_path / "copies").files[0]
    assert before.version == f"sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}"
    assert before.stamp == f"{file.stat().st_size}-{file.stat().st_mtime_ns}"
    assert not changed_files(batch)

    os.utime(file, ns=(1, 1))
    touched = discover([str(file)]).files[0]
    assert touched.version == before.version
    assert touched.stamp != before.stamp
    assert list(changed_files(batch)) == [before]

    text = file.read_text()
    file.write_text(text + text.splitlines()[-1] + "\n")
    assert discover([str(file)]).files[0].version != before.version
    file.unlink()
    assert list(changed_files(batch)) == [before]


@pytest.mark.parametrize("renames", [False, True])
def test_a_file_whose_content_was_replaced_has_changed_even_if_its_time_was_set_back(
    tmp_path: Path, *, renames: bool
) -> None:
    file = write(tmp_path / "a.csv")
    batch = discover([str(file)])
    before = file.stat()
    other = tmp_path / "other.csv" if renames else file
    time.sleep(_TICK_S)
    other.write_bytes(file.read_bytes()[::-1])
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(file)
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert list(changed_files(batch)) == list(batch.files)


def test_a_file_that_was_only_touched_has_not_changed(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv")
    batch = discover([str(file)])
    file.chmod(0o600)
    (tmp_path / "b.csv").hardlink_to(file)
    assert not changed_files(batch)
    file.chmod(0o400)
    assert not changed_files(batch)


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.json"])
def test_a_file_that_is_replaced_between_its_rows_and_its_version_is_refused(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / name
    rows = pa.table({"n": [1, 2, 3]})
    if name.endswith("parquet"):
        pq.write_table(rows, file)
    else:
        file.write_text("n\n1\n2\n" if name.endswith("csv") else '{"n": 1}\n')
    read = LocalFile.content_version

    def replaced(found: LocalFile) -> str:
        was = file.stat()
        time.sleep(_TICK_S)
        file.write_bytes(file.read_bytes().replace(b"1", b"7"))
        os.utime(file, ns=(was.st_atime_ns, was.st_mtime_ns))
        return read(found)

    monkeypatch.setattr(LocalFile, "content_version", replaced)
    with pytest.raises(SourceError, match=f"'{file}' changed while it was read"):
        discover([str(file)])


def test_a_file_is_known_by_its_real_path_whatever_link_led_to_it(tmp_path: Path) -> None:
    real = write(tmp_path / "real/a.csv")
    (tmp_path / "folder").symlink_to(tmp_path / "real")
    (tmp_path / "link.csv").symlink_to(real)
    known = discover([str(real)]).files[0]
    for link in ("folder/a.csv", "link.csv"):
        (found_by_link,) = discover([str(tmp_path / link)]).files
        assert (found_by_link.uri, found_by_link.aliases) == (known.uri, (to_uri(tmp_path / link),))
    assert len(discover([str(tmp_path / "link.csv"), str(real), str(tmp_path / "folder/a.csv")]).files) == 1


def test_links_to_names_that_spark_would_read_in_another_way_are_refused(tmp_path: Path) -> None:
    for name in ("_hidden.csv", "blob"):
        write(tmp_path / "real" / name)
    (tmp_path / "a.csv").symlink_to(tmp_path / "real/_hidden.csv")
    (tmp_path / "b.csv.gz").symlink_to(tmp_path / "real/blob")
    (tmp_path / "c.csv").symlink_to(tmp_path / "real/blob")
    _, (hidden, packed) = resolve([str(tmp_path / name) for name in ("a.csv", "b.csv.gz", "c.csv")], Wanted(None))
    assert "is a link to" in hidden.message
    assert "another compression" in packed.message
