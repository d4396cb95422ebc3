"""Hosts of a cluster on one machine: each has an address, a host name and files of its own, and shares none.

A host is a network namespace, connected to all others by a bridge in one more namespace, so nothing outside sees the
cluster. A process of a host also gets a mount namespace, in which the folder ``disk`` is its host's and the other
hosts' are gone.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

DOMAIN = "lake.test"
_NETWORK = "10.77.0"
_NOWHERE = "02:00:00:00:ff:ff"
_PROGRAMS = ("ip", "mount", "nsenter", "unshare")
_ENTER = """set -e
base=$1 host=$2
shift 2
echo "$host" > /proc/sys/kernel/hostname
mount --bind "$base/names" /etc/hosts
mount --bind "$base/hosts/${host%%.*}" "$base/disk"
mount -t tmpfs none "$base/hosts"
cd "$base/disk"
exec "$@"
"""


class ClusterError(Exception):
    """What stops the cluster, in a sentence."""


class NotAllowedError(ClusterError):
    """This machine can't have such a cluster."""


@dataclass(frozen=True)
class Network:
    """The hosts.

    Attributes:
        name: The start of the namespaces' names, so that several clusters can be up at once.
        hosts: The hosts' names, without domain.
    """

    name: str
    hosts: tuple[str, ...]

    @classmethod
    def find(cls, name: str) -> Network | None:
        """Return the one that exists under a name."""
        with suppress(FileNotFoundError):
            names = cls(name, ()).base.joinpath("names").read_text(encoding="ascii")
            return cls(name, tuple(line.split()[1].partition(".")[0] for line in names.splitlines()[1:]))
        return None

    @property
    def base(self) -> Path:
        """The folder with everything."""
        return Path("/var/tmp") / self.name  # noqa: S108 - created by root, for root

    @property
    def disk(self) -> Path:
        """Where each host sees its own files."""
        return self.base / "disk"

    def files(self, host: str) -> Path:
        """Where this machine sees a host's files."""
        return self.base / "hosts" / host

    def address(self, host: str) -> str:
        """Return a host's IP address."""
        return f"{_NETWORK}.{self.hosts.index(host) + 2}"

    def reserve(self) -> None:
        """Create the folder.

        Raises:
            ClusterError: This machine doesn't allow namespaces, or the cluster is up.
        """
        require_namespaces()
        try:
            self.base.mkdir(mode=0o711)
        except FileExistsError:
            raise ClusterError(f"{self.base} exists: is the cluster up? Stop it with: down") from None

    def create(self) -> None:
        """Create the namespaces, and the hosts' folders."""
        self.disk.mkdir(mode=0o711)
        lines = ["127.0.0.1 localhost", *(f"{self.address(host)} {host}.{DOMAIN}" for host in self.hosts)]
        (self.base / "names").write_text("\n".join(lines) + "\n", encoding="ascii")
        switch = self._namespace("switch")
        _run("ip", "netns", "add", switch)
        _run("ip", "-n", switch, "link", "add", "bridge", "type", "bridge")
        _run("ip", "-n", switch, "link", "set", "bridge", "up")
        for host in self.hosts:
            (self.files(host) / "tmp").mkdir(mode=0o711, parents=True)
            self._connect(host, switch)

    def _connect(self, host: str, switch: str) -> None:
        space = self._namespace(host)
        _run("ip", "netns", "add", space)
        _run("ip", "-n", space, "link", "set", "lo", "up")
        _run("ip", "-n", space, "link", "add", "eth0", "type", "veth", "peer", "name", host, "netns", switch)
        _run("ip", "-n", space, "address", "add", f"{self.address(host)}/24", "dev", "eth0")
        _run("ip", "-n", space, "link", "set", "eth0", "up")
        _run("ip", "-n", switch, "link", "set", "dev", host, "master", "bridge", "up")

    def remove(self) -> None:
        """End all processes, and remove namespaces and files. Those that are gone already don't matter."""
        for host in self.hosts:
            self.kill(host)
        for host in (*self.hosts, "switch"):
            subprocess.run(["ip", "netns", "delete", self._namespace(host)], capture_output=True, check=False)
        shutil.rmtree(self.base, ignore_errors=True)

    def command(self, host: str, command: Sequence[str]) -> list[str]:
        """Return the command that runs another one on a host, in its folder."""
        space = f"--net=/run/netns/{self._namespace(host)}"
        inside = ["sh", "-c", _ENTER, "sh", str(self.base), f"{host}.{DOMAIN}", *command]
        return ["nsenter", space, "unshare", "--mount", "--uts", *inside]

    def environment(self, extra: Mapping[str, str]) -> dict[str, str]:
        """Return what the host's programs find in their environment: nothing of this shell's secrets."""
        kept = {name: os.environ[name] for name in ("LANG", "TZ", "JAVA_TOOL_OPTIONS") if name in os.environ}
        path = f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin"
        return {**kept, "PATH": path, "HOME": str(self.disk), "TMPDIR": str(self.disk / "tmp"), **extra}

    def kill(self, host: str) -> None:
        """End all processes of a host, as a power cut would."""
        deadline = time.monotonic() + 20
        while (running := self.processes(host)) and time.monotonic() < deadline:
            for process in running:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            time.sleep(0.05)

    def processes(self, host: str) -> list[int]:
        """Return the ids of all processes of a host."""
        listed = subprocess.run(
            ["ip", "netns", "pids", self._namespace(host)], capture_output=True, text=True, check=False
        ).stdout
        return [int(process) for process in listed.split() if not _is_zombie(int(process))]

    def cut(self, one: str, other: str) -> None:
        """Lose every packet between two hosts, silently, until :meth:`mend`; both still reach all others."""
        for here, there in ((one, other), (other, one)):
            neighbour = (self.address(there), "lladdr", _NOWHERE, "dev", "eth0", "nud", "permanent")
            _run("ip", "-n", self._namespace(here), "neighbour", "replace", *neighbour)

    def mend(self, one: str, other: str) -> None:
        """Undo :meth:`cut`."""
        for here, there in ((one, other), (other, one)):
            _run("ip", "-n", self._namespace(here), "neighbour", "delete", self.address(there), "dev", "eth0")

    def _namespace(self, host: str) -> str:
        return f"{self.name}-{host}"


def require_namespaces() -> None:
    """Raise a :class:`NotAllowedError` that says why this machine can't have namespaces."""
    if sys.platform != "linux" or os.geteuid() != 0:
        raise NotAllowedError("Network namespaces need Linux and root.")
    missing = [program for program in _PROGRAMS if shutil.which(program) is None]
    if missing:
        raise NotAllowedError(f"{', '.join(missing)} can't be found: install iproute2 and util-linux.")
    probe = f"lakegate-probe-{os.getpid()}"
    try:
        _run("ip", "netns", "add", probe)
        try:
            _run("ip", "-n", probe, "link", "add", "bridge", "type", "bridge")
            _run("ip", "-n", probe, "link", "add", "eth0", "type", "veth", "peer", "name", "eth1")
            _run(
                "nsenter",
                f"--net=/run/netns/{probe}",
                "unshare",
                "--mount",
                "--uts",
                "mount",
                "-t",
                "tmpfs",
                "x",
                "/mnt",
            )
        finally:
            _run("ip", "netns", "delete", probe)
    except ClusterError as error:
        raise NotAllowedError(
            f"This machine doesn't allow network namespaces with a bridge and mounts: {error}"
        ) from None


def _is_zombie(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ClusterError(f"`{' '.join(command)}` failed: {done.stderr.strip()}")
