"""A Spark cluster on this machine, each server and client on a host of its own. See `docs/how-to`.

cluster up | down | exec HOST COMMAND… | kill HOST | start HOST | cut HOST HOST | mend HOST HOST
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import servers
from hosts import ClusterError, Network, NotAllowedError
from lakegate.local.servers import most_relevant_line

_READY_S = 180
_NOT_ALLOWED = 77
_SERVERS = ("store", "journal", "nessie", "master", "spark", "gate")
_CLIENTS = ("client-1", "client-2", "client-3")


def main() -> int:
    """Do what the command line says; return 0, or else, after a sentence, 77 if this machine can't, and 1."""
    parser = argparse.ArgumentParser(prog="cluster", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--name", default="lakegate-cluster", help="several can be up at once under different names")
    parser.add_argument("--workers", type=int, default=2, choices=range(1, 10), help="how many to start")
    parser.add_argument("--memory", default="768m", help="of Spark's driver and of each worker")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("up", help="start it")
    commands.add_parser("down", help="end its processes, and remove its files and namespaces")
    execute = commands.add_parser("exec", help="run a command on a host")
    execute.add_argument("host")
    execute.add_argument("line", nargs=argparse.REMAINDER, metavar="COMMAND")
    for name, text in (("kill", "end all processes of a host"), ("start", "start its server again")):
        commands.add_parser(name, help=text).add_argument("host")
    for name, text in (("cut", "lose all packets between two hosts"), ("mend", "undo it")):
        commands.add_parser(name, help=text).add_argument("hosts", nargs=2, metavar="HOST")
    commands.add_parser("serve", help=argparse.SUPPRESS).add_argument("host")
    given = parser.parse_args()
    workers = tuple(f"worker-{number}" for number in range(1, given.workers + 1))
    network = Network.find(given.name) or Network(given.name, (*_SERVERS, *_CLIENTS, *workers))
    try:
        _do(network, given)
    except ClusterError as error:
        sys.stderr.write(f"cluster: {error}\n")
        return _NOT_ALLOWED if isinstance(error, NotAllowedError) else 1
    return 0


def _do(network: Network, given: argparse.Namespace) -> None:
    _require_possible(network, given)
    match given.command:
        case "up":
            _up(network, given.memory)
        case "down":
            network.remove()
        case "exec":
            command = network.command(given.host, given.line)
            os.execvpe(command[0], command, network.environment(servers.variables(network)))  # noqa: S606
        case "kill":
            network.kill(given.host)
        case "start":
            _start(network, given.host, given.memory)
            _wait(network, [given.host])
        case "cut":
            network.cut(*given.hosts)
        case "mend":
            network.mend(*given.hosts)
        case "serve":
            servers.run(network, given.host, given.memory)


def _require_possible(network: Network, given: argparse.Namespace) -> None:
    if os.geteuid() != 0:
        raise NotAllowedError("Network namespaces need Linux and root.")
    if given.command not in ("up", "down") and not network.base.exists():
        raise ClusterError("The cluster isn't up. Start it with: up")
    named = [*getattr(given, "hosts", ()), *([given.host] if "host" in given else [])]
    unknown = [host for host in named if host not in network.hosts]
    if unknown:
        raise ClusterError(f"There is no host {unknown[0]}. There are: {', '.join(network.hosts)}.")


def _up(network: Network, memory: str) -> None:
    network.reserve()
    try:
        network.create()
        servers.prepare(network)
        workers = [host for host in network.hosts if host.startswith("worker")]
        # Each asks for some of those before it when it starts, and ends if they don't answer.
        first = ["store", "journal", "nessie"]
        for started, needed in (
            ([*first, "master"], ["master"]),
            (["spark", *workers], [*first, "spark"]),
            (["gate"], ["gate"]),
        ):
            for host in started:
                _start(network, host, memory)
            _wait(network, needed)
    except BaseException:
        network.remove()
        raise


def _start(network: Network, host: str, memory: str) -> None:
    (network.files(host) / "ready").unlink(missing_ok=True)
    script = [sys.executable, str(Path(__file__).parent), f"--name={network.name}", f"--memory={memory}"]
    command = network.command(host, [*script, "serve", host])
    environment = network.environment({**servers.variables(network), "PYTHONPATH": os.environ.get("PYTHONPATH", "")})
    with (network.base / f"{host}.log").open("ab") as log:
        subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )


def _wait(network: Network, hosts: list[str]) -> None:
    """Wait until a client reaches each server."""
    deadline = time.monotonic() + _READY_S
    for host in (host for host in hosts if host in servers.PORTS):
        probe = f"import socket; socket.create_connection(('{network.address(host)}', {servers.PORTS[host]}), 2)"
        command = network.command("client-1", [sys.executable, "-S", "-c", probe])
        while subprocess.run(command, capture_output=True, check=False).returncode != 0 or _starts(network, host):
            if time.monotonic() > deadline or not network.processes(host):
                raise ClusterError(f"{host} doesn't answer: {most_relevant_line(network.base / f'{host}.log')}")
            time.sleep(0.2)


def _starts(network: Network, host: str) -> bool:
    return host == "store" and not (network.files(host) / "ready").exists()  # its buckets come after its port


if __name__ == "__main__":
    sys.exit(main())
