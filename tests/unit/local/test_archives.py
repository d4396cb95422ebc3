"""Archives of classes: that no failure keeps a server from starting, and which ones are deleted."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from lakegate.local import archives
from lakegate.local.archives import archive_options, archive_path, forget_archive


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a JRE's archives. Its ``java`` makes the base by a script."""
    program = tmp_path / "jre" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\ntouch "$(dirname "$0")/../lib/server/classes.jsa"\n', encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setattr(archives, "java", lambda: program)
    monkeypatch.delenv("JAVA_TOOL_OPTIONS", raising=False)
    monkeypatch.delenv("JDK_JAVA_OPTIONS", raising=False)
    folder = tmp_path / "jre" / "lib" / "server"
    folder.mkdir(parents=True)
    return folder


def test_a_server_uses_its_own_archive_above_the_base(folder: Path) -> None:
    auto, archive, check = archive_options("spark")
    assert (folder / "classes.jsa").is_file()
    assert archive == f"-XX:SharedArchiveFile={folder / 'lakegate-spark.jsa'}"
    assert (auto, check) == ("-XX:+AutoCreateSharedArchive", "-XX:+VerifySharedSpaces")


def test_without_a_base_there_is_no_archive(folder: Path) -> None:
    (folder.parent.parent / "bin" / "java").write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    assert archive_options("spark") == ()
    (folder.parent.parent / "bin" / "java").unlink()
    assert archive_options("spark") == ()


@pytest.mark.parametrize("own", ["-Xshare:off", "-XX:SharedArchiveFile=mine.jsa"])
def test_the_users_own_options_win(own: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Xss4m {own}")
    assert archive_options("nessie") == ()


def test_only_an_archive_of_a_failed_start_is_deleted() -> None:
    path = archive_path("nessie")
    forget_archive("nessie", since=0.0)  # there's none
    path.touch()
    forget_archive("nessie", since=time.time() + 60)
    assert path.is_file()
    forget_archive("nessie", since=time.time() - 60)
    assert not path.exists()
