"""AWS on this machine: MiniStack, in an environment of its own, on the loopback interface, until a block ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock

from support.ports import free_port

LOCK = Path(__file__).with_name("ministack.lock")
PLACE = Path(sys.prefix) / "ministack"
REGION = "us-east-1"
_START_S = 180.0
_STOP_S = 15.0


class MiniStack:
    """A running MiniStack.

    Attributes:
        endpoint: Its URL.
        log: What it and its functions print.
    """

    def __init__(self, endpoint: str, log: Path) -> None:
        self.endpoint = endpoint
        self.log = log

    @property
    def environment(self) -> dict[str, str]:
        """Variables that make AWS's tools and libraries use MiniStack, and nothing of the user's."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "lakegate",
            "AWS_SECRET_ACCESS_KEY": "any-will-do",
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
        }


@contextmanager
def ministack() -> Iterator[MiniStack]:
    """Run one, in a folder of its own, with the functions that are deployed to it."""
    python = _installed()
    with tempfile.TemporaryDirectory(prefix="lakegate-ministack-") as name:
        folder = Path(name)
        port = free_port()
        server = MiniStack(f"http://127.0.0.1:{port}", folder / "ministack.log")
        variables = {
            **server.environment,
            "PATH": os.environ["PATH"],
            "HOME": name,
            "TMPDIR": name,
            "PYTHONUNBUFFERED": "1",
            "BIND_HOST": "127.0.0.1",
            "MINISTACK_HOST": "127.0.0.1",
            "GATEWAY_PORT": str(port),
            "MINISTACK_REGION": REGION,
            "LAMBDA_EXECUTOR": "local",
            "S3_DATA_DIR": str(folder / "s3"),
            "IOT_MTLS_ENABLED": "0",
            "SFTP_ENABLED": "0",
            "DOCKER_HOST": f"unix://{folder / 'no-docker'}",
            # Functions inherit these.
            "LAKEGATE_S3_ENDPOINT": server.endpoint,
            "LAKEGATE_S3_REGION": REGION,
            "LAKEGATE_S3_PATH_STYLE": "true",
        }
        with server.log.open("wb") as log:
            process = subprocess.Popen(
                [str(python), "-P", "-m", "ministack"],
                env=variables,
                cwd=folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            _await(server, process)
            yield server
        finally:
            _end(process)


def _installed() -> Path:
    """Return the Python of MiniStack's environment, which is made once."""
    python = PLACE / "bin" / "python"
    done = PLACE / f".{LOCK.stat().st_size}"
    with FileLock(PLACE.with_suffix(".lock")):
        if not done.exists():
            uv = Path(sys.executable).with_name("uv")
            subprocess.run([uv, "venv", "--quiet", "--allow-existing", "--python", sys.executable, PLACE], check=True)
            sync = [uv, "pip", "sync", "--quiet", "--python", python, "--require-hashes", LOCK]
            subprocess.run(list(map(str, sync)), check=True)
            done.touch()
    return python


def _await(server: MiniStack, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_S
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(OSError, urllib.error.URLError), direct.open(f"{server.endpoint}/_ministack/health", timeout=5):
            return
        time.sleep(0.05)
    raise RuntimeError(f"MiniStack didn't start:\n{server.log.read_text()[-2000:]}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End MiniStack and the functions that it runs, all of which are in its group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_S)
