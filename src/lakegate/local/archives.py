"""Archives of loaded classes, which halve the CPU time of a server's start.

Each start, a JVM reads, checks and links the same ten thousand classes. Java can dump them from memory into a file
("class data sharing"), which the next JVM maps. A start without such an archive lists the classes it loads. Minutes
later, a background process builds the archive from that list, once for all of this user's projects.

Archives are optional: if anything goes wrong here, servers start without one. Java verifies an archive's checksums and
that it fits the class path, and otherwise ignores it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from lakegate.errors import LocalStackError
from lakegate.local import process
from lakegate.local.artifacts import cache_folder, java, user_java_options
from lakegate.local.servers import machine_memory

# By then, the command that started the servers has most likely ended, and so has a container that ran only that.
_DELAY_S = 120.0
_TIMEOUT_S = 1800.0
_RETRY_AFTER_S = 86400.0
_UNUSED_AFTER_S = 30 * 86400.0
# Each Python environment has its own JRE, and therefore its own archives.
_KEPT_PER_SERVER = 5
_NICENESS = 19
# Building an archive takes 600 MB of memory; the file has 120 MB.
_NEEDS_MEMORY_BYTES = 1536 * 2**20
_NEEDS_MACHINE_BYTES = 3 * 2**30
_NEEDS_DISK_BYTES = 1024 * 2**20
_MIN_ARCHIVE_BYTES = 2**20
_USER_OPTIONS = ("-Xshare", "SharedArchiveFile", "ArchiveClassesAtExit", "DumpLoadedClassList")


@dataclass(frozen=True, slots=True)
class Archive:
    """One server's archive, which may not exist yet.

    Attributes:
        path: The file. Its name encodes the server, the JRE and the jars.
        class_options: The Java options that decide where classes come from. The last one is the class path.
    """

    path: Path
    class_options: tuple[str, ...]

    def options(self, class_list: Path) -> tuple[str, ...]:
        """Return Java options that use the archive, or that list the classes for building it.

        Args:
            class_list: The file for the list, relative to the server's folder, since Java replaces ``%`` in this path.
        """
        if self.path.is_file():
            with contextlib.suppress(OSError):
                os.utime(self.path)  # so that _remove_unused keeps it
            # By default, Java maps the file without checking its content. Comparing checksums takes 0.05 s.
            return (f"-XX:SharedArchiveFile={self.path}", "-XX:+VerifySharedSpaces")
        return () if self._failed_recently() else (f"-XX:DumpLoadedClassList={class_list}",)

    def job(self, class_list: Path) -> ArchiveJob | None:
        """Return the job that builds the archive; ``None`` if it exists or can't be built.

        Args:
            class_list: The list that a running server has written so far. It's copied.
        """
        if self.path.is_file():
            return None
        try:
            listed = class_list.read_bytes()
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            copy = self.path.with_suffix(f".{secrets.token_hex(4)}.classes")
            copy.write_bytes(listed[: listed.rfind(b"\n") + 1])  # without a half-written last line
        except OSError:
            return None  # there's no list, or the cache is read-only or full
        return ArchiveJob(str(self.path), self.class_options, str(copy))

    def _failed_recently(self) -> bool:
        try:
            return time.time() - _failed(self.path).stat().st_mtime < _RETRY_AFTER_S
        except OSError:
            return False


@dataclass(frozen=True, slots=True)
class ArchiveJob:
    """A job for the background process: which archive to build, for which class path, from which classes."""

    path: str
    class_options: tuple[str, ...]
    class_list: str


def find(server: str, class_options: Sequence[str]) -> Archive | None:
    """Return the archive for a server with these options; ``None`` if it can't have one.

    Args:
        class_options: The Java options that decide where classes come from. The last one is the class path.
    """
    if not class_options or any(word in user_java_options() for word in _USER_OPTIONS):
        return None
    try:
        program = java()
        release = (program.parent.parent / "release").read_bytes()
        holds_for = [str(program), release.hex(), list(class_options), [_identity(jar) for jar in _jars(class_options)]]
    except OSError:
        return None
    key = hashlib.sha256(json.dumps(holds_for).encode()).hexdigest()[:16]
    path = cache_folder() / "archives" / f"{server}-{key}.jsa"
    # Java would read the text after a colon as a second archive.
    return None if os.pathsep in str(path) else Archive(path, tuple(class_options))


def make_later(jobs: Sequence[ArchiveJob]) -> None:
    """Start a background process that builds archives after some minutes, at the lowest priority."""
    if not jobs:
        return
    folder = Path(jobs[0].path).parent
    program = f"import sys; from {__name__} import main; main(sys.argv[1])"
    command = (sys.executable, "-P", "-c", program, json.dumps([asdict(job) for job in jobs]))
    with contextlib.suppress(LocalStackError):
        process.spawn(command, env=_environment(), cwd=folder, log=folder / "archives.log")


def make(job: ArchiveJob) -> bool:
    """Build an archive, unless it exists or another process is building it; return whether it exists.

    The file appears atomically, even if several processes try at once or one is killed.
    """
    import filelock

    path = Path(job.path)
    try:
        with filelock.FileLock(path.with_name(f"{path.name}.lock"), timeout=0):
            for leftover in path.parent.glob(f"{path.stem}.*.draft"):
                leftover.unlink(missing_ok=True)
            if not path.is_file() and shutil.disk_usage(path.parent).free > _NEEDS_DISK_BYTES:
                _remove_unused(path)
                _dump(job, path)
    except (OSError, filelock.Timeout):
        pass
    finally:
        with contextlib.suppress(OSError):
            Path(job.class_list).unlink(missing_ok=True)
    return path.is_file()


def main(text: str) -> None:
    """Run the background process: wait, then build the archives of the jobs in ``text`` (JSON)."""
    os.nice(_NICENESS)
    time.sleep(_DELAY_S)
    for fields in json.loads(text):
        job = ArchiveJob(fields["path"], tuple(fields["class_options"]), fields["class_list"])
        if _has_memory():
            make(job)
        else:
            Path(job.class_list).unlink(missing_ok=True)


def _dump(job: ArchiveJob, path: Path) -> None:
    draft = path.with_suffix(f".{os.getpid()}.draft")
    command = (
        *(str(java()), "-Xshare:dump", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"),
        *(f"-XX:SharedClassListFile={job.class_list}", f"-XX:SharedArchiveFile={draft}"),
        *("-Xlog:disable", "-Xlog:all=error:stderr", *job.class_options),
    )
    try:
        done = subprocess.run(
            command,
            env=_environment(),
            cwd=path.parent,
            stdin=subprocess.DEVNULL,
            check=False,
            timeout=_TIMEOUT_S,
        )
        if done.returncode == 0 and draft.stat().st_size > _MIN_ARCHIVE_BYTES:
            draft.replace(path)
            return
    except (OSError, subprocess.TimeoutExpired):
        pass  # counts as a failure: no other try for a day
    finally:
        draft.unlink(missing_ok=True)
    _failed(path).touch()


def _environment() -> dict[str, str]:
    """Return a server's environment without the user's Java options, which aren't meant for this process."""
    return {name: value for name, value in process.environment({}).items() if name not in process.JAVA_VARIABLES}


def _has_memory() -> bool:
    import psutil

    return machine_memory() >= _NEEDS_MACHINE_BYTES and psutil.virtual_memory().available >= _NEEDS_MEMORY_BYTES


def _remove_unused(coming: Path) -> None:
    """Delete archives that no start has used for long, and the oldest ones if there are too many.

    They belong to versions and environments that are gone. A running server keeps its mapping of a deleted archive.
    """
    folder = coming.parent
    for path in (*folder.glob("*.jsa"), *folder.glob("*.classes"), *folder.glob("*.failed")):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _UNUSED_AFTER_S:
                path.unlink()
    with contextlib.suppress(OSError):
        server = coming.name.partition("-")[0]
        by_use = sorted(folder.glob(f"{server}-*.jsa"), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in by_use[_KEPT_PER_SERVER - 1 :]:
            path.unlink()


def _failed(path: Path) -> Path:
    return path.with_suffix(".failed")


def _jars(class_options: Sequence[str]) -> Iterator[Path]:
    """Yield the jars of the class path in Java's order. A folder's jars keep the system's order."""
    for part in class_options[-1].split(os.pathsep):
        if part.endswith("*"):
            with os.scandir(part.removesuffix("*")) as entries:
                yield from (Path(entry.path) for entry in entries if entry.name.endswith((".jar", ".JAR")))
        else:
            yield Path(part)


def _identity(jar: Path) -> list[object]:
    status = jar.stat()
    return [str(jar), status.st_size, status.st_mtime_ns]
