"""Archives of loaded classes, with which a server starts in half the processor time.

A JVM that starts reads, checks and links ten thousand classes, the same ones each time. Java can keep them in a file
as it has them in memory ("class data sharing"), which the next JVM maps. A start without such an archive lists the
classes it loads; minutes later, a process in the background makes the archive from that list, once for all of this
user's projects.

An archive is only ever an advantage: whatever goes wrong here, servers start without. Java checks the file's sums and
whether it fits, and else does without it, too.
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
from lakegate.local.artifacts import cache_folder
from lakegate.local.java import java, user_java_options
from lakegate.local.servers import machine_memory

# The command that started the servers is over by then, most likely, and so is a container that lives for one command.
_DELAY_S = 120.0
_TIMEOUT_S = 1800.0
_RETRY_AFTER_S = 86400.0
_UNUSED_AFTER_S = 30 * 86400.0
# Each environment has a JRE of its own, and so archives of its own.
_KEPT_PER_SERVER = 5
_NICENESS = 19
# Making one takes 600 MB of memory, and leaves a file of 120.
_NEEDS_MEMORY_BYTES = 1536 * 2**20
_NEEDS_MACHINE_BYTES = 3 * 2**30
_NEEDS_DISK_BYTES = 1024 * 2**20
_MIN_ARCHIVE_BYTES = 2**20
_USERS_OWN = ("-Xshare", "SharedArchiveFile", "ArchiveClassesAtExit", "DumpLoadedClassList")


@dataclass(frozen=True, slots=True)
class Archive:
    """One server's archive, made or not.

    Attributes:
        path: The file. Its name encodes the server, the JRE and the jars that it holds for.
        class_options: The Java options that decide where classes come from, the last of which is the class path.
    """

    path: Path
    class_options: tuple[str, ...]

    def options(self, class_list: Path) -> tuple[str, ...]:
        """Return the Java options that use the archive, or that list the classes to make it of.

        Args:
            class_list: Where to list them: relative to the server's folder, as Java replaces ``%`` in this path.
        """
        if self.path.is_file():
            with contextlib.suppress(OSError):
                os.utime(self.path)  # in use: see _remove_unused
            # Java maps the file without a look at its content unless it must compare sums, which takes 0.05 s.
            return (f"-XX:SharedArchiveFile={self.path}", "-XX:+VerifySharedSpaces")
        return () if self._failed_lately() else (f"-XX:DumpLoadedClassList={class_list}",)

    def job(self, class_list: Path) -> Job | None:
        """Return what to do to make the archive; ``None`` if there is nothing to do.

        Args:
            class_list: What a running server has listed so far; it is copied.
        """
        if self.path.is_file():
            return None
        try:
            listed = class_list.read_bytes()
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            copy = self.path.with_suffix(f".{secrets.token_hex(4)}.classes")
            copy.write_bytes(listed[: listed.rfind(b"\n") + 1])  # Java may be in the middle of a line
        except OSError:
            return None  # it listed none, or the cache is read-only or full
        return Job(str(self.path), self.class_options, str(copy))

    def _failed_lately(self) -> bool:
        try:
            return time.time() - _failed(self.path).stat().st_mtime < _RETRY_AFTER_S
        except OSError:
            return False


@dataclass(frozen=True, slots=True)
class Job:
    """The order for the background process: the archive to make, for which class path, of which classes."""

    path: str
    class_options: tuple[str, ...]
    class_list: str


def find(server: str, class_options: Sequence[str]) -> Archive | None:
    """Return the archive for a server with these options; ``None`` when it can have none.

    Args:
        class_options: The Java options that decide where classes come from, the last of which is the class path.
    """
    if not class_options or any(word in user_java_options() for word in _USERS_OWN):
        return None
    try:
        program = java()
        release = (program.parent.parent / "release").read_bytes()
        holds_for = [str(program), release.hex(), list(class_options), [_identity(jar) for jar in _jars(class_options)]]
    except OSError:
        return None
    key = hashlib.sha256(json.dumps(holds_for).encode()).hexdigest()[:16]
    path = cache_folder() / "archives" / f"{server}-{key}.jsa"
    # Java takes what follows a colon for another archive.
    return None if os.pathsep in str(path) else Archive(path, tuple(class_options))


def make_later(jobs: Sequence[Job]) -> None:
    """Have archives made by a process in the background, at the lowest priority and in some minutes."""
    if not jobs:
        return
    folder = Path(jobs[0].path).parent
    program = f"import sys; from {__name__} import main; main(sys.argv[1])"
    command = (sys.executable, "-P", "-c", program, json.dumps([asdict(job) for job in jobs]))
    with contextlib.suppress(LocalStackError):
        process.spawn(command, env=_environment(), cwd=folder, log=folder / "archives.log")


def make(job: Job) -> bool:
    """Make an archive, unless there is one or another process is making it, and return whether it exists.

    The file appears whole or not at all. Safe in several processes at once, and when one is killed.
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
    """Make archives as the process in the background does: later, and out of everybody's way."""
    os.nice(_NICENESS)
    time.sleep(_DELAY_S)
    for told in json.loads(text):
        job = Job(told["path"], tuple(told["class_options"]), told["class_list"])
        if _has_memory():
            make(job)
        else:
            Path(job.class_list).unlink(missing_ok=True)


def _dump(job: Job, path: Path) -> None:
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
        pass  # as if it had failed: there is none, and no other try for a day
    finally:
        draft.unlink(missing_ok=True)
    _failed(path).touch()


def _environment() -> dict[str, str]:
    """Return a server's environment without the user's options for Java, which aren't meant for this."""
    return {name: value for name, value in process.environment({}).items() if name != "JAVA_TOOL_OPTIONS"}


def _has_memory() -> bool:
    import psutil

    return machine_memory() >= _NEEDS_MACHINE_BYTES and psutil.virtual_memory().available >= _NEEDS_MEMORY_BYTES


def _remove_unused(coming: Path) -> None:
    """Remove what no start has used for long, and what is too many with the archive to come.

    These are archives of versions and environments that are gone. Servers that run keep theirs.
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
    """Yield the jars of the class path in the order in which Java has them; that of a folder is the folder's own."""
    for part in class_options[-1].split(os.pathsep):
        if part.endswith("*"):
            with os.scandir(part.removesuffix("*")) as entries:
                yield from (Path(entry.path) for entry in entries if entry.name.endswith((".jar", ".JAR")))
        else:
            yield Path(part)


def _identity(jar: Path) -> list[object]:
    status = jar.stat()
    return [str(jar), status.st_size, status.st_mtime_ns]
