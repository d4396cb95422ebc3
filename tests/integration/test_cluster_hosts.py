"""The hosts of the example's cluster; ``make prove`` runs lakegate on them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from hosts import Network, NotAllowedError, require_namespaces
from support.waiting import wait_until

pytestmark = pytest.mark.system

_ANSWER = "import socket; s = socket.create_server(('', 7000)); print('up', flush=True)\nwhile True: s.accept()"
_ASK = "import socket, sys; socket.create_connection((sys.argv[1], 7000), float(sys.argv[2])).close()"


@pytest.fixture
def network() -> Iterator[Network]:
    try:
        require_namespaces()
    except NotAllowedError as error:
        pytest.skip(str(error))
    made = Network(f"lakegate-test-{os.getpid()}", ("one", "two"))
    made.reserve()
    try:
        made.create()
        yield made
    finally:
        made.remove()


def run(network: Network, host: str, *command: str) -> subprocess.CompletedProcess[str]:
    words = network.command(host, command)
    return subprocess.run(words, env=network.environment({}), capture_output=True, text=True, check=False)


def test_hosts_have_names_and_files_of_their_own_and_share_none(network: Network) -> None:
    assert run(network, "one", "sh", "-c", "echo mine > file").returncode == 0
    seen = "uname -n; cat file; ls ../hosts"
    assert run(network, "one", "sh", "-c", seen).stdout.split() == ["one.lake.test", "mine"]
    assert run(network, "two", "sh", "-c", seen).stdout.split() == ["two.lake.test"]


def test_hosts_can_be_cut_off_from_each_other_and_killed(network: Network) -> None:
    def answers(within_s: str) -> bool:
        return run(network, "one", sys.executable, "-S", "-c", _ASK, "two.lake.test", within_s).returncode == 0

    words = network.command("two", [sys.executable, "-S", "-c", _ANSWER])
    with subprocess.Popen(words, env=network.environment({}), stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "up\n"
        assert answers("60")
        network.cut("one", "two")
        assert not answers("0.5")
        network.mend("one", "two")
        wait_until(lambda: answers("5"), what="an answer after the cut")
        network.kill("two")
        assert server.wait() != 0
