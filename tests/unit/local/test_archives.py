"""Archives of classes: their identity, their creation, and that no failure keeps a server from starting."""

from __future__ import annotations

import json
import os
import stat
import sys
import time
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import filelock
import pytest

from lakegate.local import archives, process
from lakegate.local.archives import Archive, ArchiveJob, find, make, make_later

# Stands in for Java: writes what it is told to, where it is told to.
_JAVA = """#!{python}
import sys, time
archive = next(word.partition("=")[2] for word in sys.argv if word.startswith("-XX:SharedArchiveFile="))
listed = next(word.partition("=")[2] for word in sys.argv if word.startswith("-XX:SharedClassListFile="))
with open(archive, "wb") as file:
    file.write(open(listed, "rb").read() + bytes({size}))
    file.flush()
    {then}
"""
_LARGE = 2**21
_LIST = Path("tmp/spark/loaded.classes")


def use_java(folder: Path, monkeypatch: pytest.MonkeyPatch, *, size: int = _LARGE, then: str = "pass") -> Path:
    program = folder / "jre" / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(_JAVA.format(python=sys.executable, size=size, then=then), encoding="utf-8")
    program.chmod(0o755)
    (program.parent.parent / "release").write_text('JAVA_VERSION="21"\n', encoding="utf-8")
    monkeypatch.setattr(archives, "java", lambda: program)
    return program


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache, ü"
    monkeypatch.setattr(archives, "cache_folder", lambda: folder)
    monkeypatch.delenv("JAVA_TOOL_OPTIONS", raising=False)
    monkeypatch.delenv("JDK_JAVA_OPTIONS", raising=False)
    use_java(tmp_path, monkeypatch)
    return folder


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    folder = tmp_path / "jars"
    folder.mkdir()
    (folder / "a.jar").write_bytes(b"a")
    (folder / "b.jar").write_bytes(b"b")
    return folder


def found(jars: Path, *options: str) -> Archive:
    archive = find("spark", (*options, "-cp", f"{jars / 'a.jar'}{os.pathsep}{jars}/*"))
    assert archive is not None
    return archive


def job_for(archive: Archive, folder: Path) -> ArchiveJob:
    listed = folder / "loaded.classes"
    listed.write_bytes(b"java/lang/Object\njava/lang/Stri")
    job = archive.job(listed)
    assert job is not None
    return job


def leftovers(archive: Archive) -> set[str]:
    """Return what lies beside an archive, less the lock's empty file."""
    return {path.name for path in archive.path.parent.iterdir()} - {archive.path.name, f"{archive.path.name}.lock"}


def test_an_archive_belongs_to_a_server_its_jre_and_its_jars(
    cache: Path, jars: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = found(jars)
    assert first.path.parent == cache / "archives"
    assert found(jars).path == first.path
    paths = {first.path, found(jars, "--add-opens=java.base/java.io=ALL-UNNAMED").path}
    os.utime(jars / "b.jar", (1, 1))
    paths.add(found(jars).path)
    (jars / "c.jar").write_bytes(b"c")
    paths.add(found(jars).path)
    use_java(tmp_path / "other", monkeypatch)
    paths.add(found(jars).path)
    nessie = find("nessie", ("-jar", str(jars / "a.jar")))
    assert nessie is not None
    assert len({*paths, nessie.path}) == 6


@pytest.mark.parametrize("option", ["-Xshare:off", "-XX:SharedArchiveFile=/mine.jsa"])
def test_a_users_own_archive_options_win(jars: Path, monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Dx=y {option}")
    assert find("spark", ("-cp", str(jars / "a.jar"))) is None


def test_the_first_start_lists_classes_and_later_ones_use_them(jars: Path, tmp_path: Path) -> None:
    archive = found(jars)
    assert archive.options(_LIST) == (f"-XX:DumpLoadedClassList={_LIST}",)
    job = job_for(archive, tmp_path)
    assert make(job)
    assert archive.path.read_bytes().startswith(b"java/lang/Object\n\0")  # without the line that was half written
    assert leftovers(archive) == set()
    # Without the comparison of sums, Java crashes on a damaged file.
    assert archive.options(_LIST) == (f"-XX:SharedArchiveFile={archive.path}", "-XX:+VerifySharedSpaces")
    assert archive.job(tmp_path / "loaded.classes") is None
    assert stat.S_IMODE(archive.path.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("size", "then"), [(_LARGE, "sys.exit(1)"), (10, "pass"), (_LARGE, "import os; os.kill(os.getpid(), 9)")]
)
def test_a_failure_leaves_nothing_and_is_not_repeated_that_day(
    jars: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, then: str
) -> None:
    use_java(tmp_path, monkeypatch, size=size, then=then)
    archive = found(jars)
    assert not make(job_for(archive, tmp_path))
    failed = archive.path.with_suffix(".failed")
    assert leftovers(archive) == {failed.name}
    assert archive.options(_LIST) == ()
    os.utime(failed, (time.time() - 90000, time.time() - 90000))
    assert archive.options(_LIST) == (f"-XX:DumpLoadedClassList={_LIST}",)


def test_one_process_builds_it_while_others_continue_without(jars: Path, tmp_path: Path) -> None:
    archive = found(jars)
    job = job_for(archive, tmp_path)
    with filelock.FileLock(f"{archive.path}.lock"):
        assert not make(job)
        assert not archive.path.exists()
    assert leftovers(archive) == set()


def test_a_full_disk_or_read_only_cache_is_tolerated(
    cache: Path, jars: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = found(jars)
    job = job_for(archive, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=10))
        assert not make(job)
    assert leftovers(archive) == set()
    Path(f"{archive.path}.lock").unlink(missing_ok=True)
    archive.path.parent.rmdir()
    archive.path.parent.write_text("not a folder")  # as root, no folder is read-only
    assert archive.job(tmp_path / "loaded.classes") is None
    assert archive.options(_LIST) == (f"-XX:DumpLoadedClassList={_LIST}",)
    assert not make(job)
    make_later([job])
    assert (cache / "archives").read_text() == "not a folder"


def test_the_background_process_gets_neither_the_project_nor_the_users_options(
    jars: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spawned: list[tuple[tuple[str, ...], dict[str, str]]] = []

    def spawn(command: tuple[str, ...], *, env: dict[str, str], cwd: Path, log: Path) -> None:
        assert cwd == log.parent == job_folder
        spawned.append((command, env))

    monkeypatch.setattr(process, "spawn", spawn)
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:+UseSerialGC")
    make_later([])
    assert spawned == []
    job = job_for(found(jars), tmp_path)
    job_folder = Path(job.path).parent
    make_later([job])
    ((command, env),) = spawned
    assert json.loads(command[-1]) == [{**asdict(job), "class_options": list(job.class_options)}]
    compile(command[-2], "program", "exec")
    assert "JAVA_TOOL_OPTIONS" not in env
