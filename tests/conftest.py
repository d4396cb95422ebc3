"""One stack a session: real Nessie, real Spark Connect, in a folder of its own."""

from __future__ import annotations

import gc
import itertools
import os
import re
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from lakegate.config import LocalSettings, load_settings
from lakegate.lake import Lake
from lakegate.local.state import StackState
from lakegate.narration import SilentNarrator
from lakegate.wiring import Wiring, local_stack
from postgres import PostgresServer, running_postgres

if TYPE_CHECKING:
    from prefect_server import PrefectServer
    from s3_server import S3Server

# How long an example takes says something of the machine, and nothing of the code.
hypothesis.settings.register_profile("lakegate", deadline=None)
hypothesis.settings.load_profile("lakegate")

# The background job of a shell ignores Ctrl+C, and so would the commands that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
_NUMBERS = itertools.count(1)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep what importing made out of the collections to come, which else take half a second each."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="module", autouse=True)
def _nothing_left_open() -> Iterator[None]:
    """Find what a file of tests left open at its own end, and not at some test of another."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """The lake's folder; its warehouse is in it, or on the S3 server with ``LAKEGATE_TEST_WAREHOUSE=s3``."""
    folder = tmp_path_factory.mktemp("lake-home")
    if os.environ.get("LAKEGATE_TEST_WAREHOUSE") == "s3":
        server: S3Server = request.getfixturevalue("s3_server")
        os.environ.update({**server.credentials, "AWS_ENDPOINT_URL": server.endpoint})
        (folder / "lakegate.toml").write_text(server.settings(f"{server.new_bucket().uri}/lake"))
    return folder


@pytest.fixture(scope="session")
def stack(home: Path) -> Iterator[StackState]:
    known = load_settings(home, env={})
    settings = known.model_copy(update={"local": LocalSettings(spark_memory="3g")})
    local = local_stack(home, settings, SilentNarrator())
    yield local.up()
    local.down()


@pytest.fixture(scope="session")
def nessie_uri(stack: StackState) -> str:
    return stack.nessie_uri


@pytest.fixture(scope="session")
def wiring(home: Path, stack: StackState) -> Iterator[Wiring]:
    made = Wiring(home, load_settings(home, env={}), session=None, narrator=SilentNarrator())
    yield made
    made.close()


@pytest.fixture(scope="session")
def lake(wiring: Wiring) -> Iterator[Lake]:
    with Lake(wiring) as opened:
        yield opened


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One real Postgres; its tests are of xdist group ``postgres``, so that there is only one."""
    with running_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """One real S3 server."""
    from s3_server import S3Server  # noqa: PLC0415 - loads boto3

    server = S3Server()
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrefectServer]:
    """One real Prefect server; its tests are of xdist group ``prefect``, so that there is only one."""
    from prefect_server import PrefectServer  # noqa: PLC0415 - as the S3 server

    server = PrefectServer(tmp_path_factory.mktemp("prefect"))
    try:
        server.start()
        yield server
    finally:
        server.kill()


@pytest.fixture
def namespace(request: pytest.FixtureRequest) -> str:
    """A namespace that no other test uses, so that tests share a lake without meeting."""
    words = re.sub(r"[^A-Za-z0-9]+", "_", request.node.name).strip("_").lower()
    return f"t{next(_NUMBERS)}_{words[:40]}"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    if not SHARED_DATA.is_dir():
        pytest.skip("the shared test data is not beside this checkout")
    return SHARED_DATA
