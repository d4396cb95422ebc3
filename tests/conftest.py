"""One stack a session: real Nessie, real Spark Connect, in a folder of its own."""

from __future__ import annotations

import functools
import gc
import itertools
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest
from _pytest.doctest import DoctestModule

from lakegate.components import Components, local_stack
from lakegate.config import LocalSettings, load_settings
from lakegate.lake import Lake
from lakegate.local.state import StackState
from lakegate.progress import SilentNarrator
from support.class_archives import make_class_archives
from support.examples import examples
from support.postgres import PostgresServer, running_postgres
from support.rewritten import prepare

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import Scheduling

    from support.prefect_server import PrefectServer
    from support.s3_server import S3Server

# How long an example takes says something of the machine, and nothing of the code.
hypothesis.settings.register_profile("lakegate", deadline=None, max_examples=examples(40, 100))
hypothesis.settings.load_profile("lakegate")

# The background job of a shell ignores Ctrl+C, and so would the commands that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The tests' tables are tiny: the code that Java's second compiler and its parallel collector would speed up never pays
# for their work, which is more than half of a server's. lakegate hands these variables on to all its servers.
# One compiler alone reserves a fifth of the room for code, which Spark fills within minutes; then calls fail oddly.
_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
if _JAVA_OPTIONS not in os.environ.get("JAVA_TOOL_OPTIONS", ""):
    os.environ["JAVA_TOOL_OPTIONS"] = f"{os.environ.get('JAVA_TOOL_OPTIONS', '')} {_JAVA_OPTIONS}".strip()

# No process that watches for idle servers beside those of tests, which stop their own.
os.environ.setdefault("LAKEGATE_LOCAL_IDLE_STOP", "0s")

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
_NUMBERS = itertools.count(1)
# A worker takes whole files: a long one that came last would keep it busy when all others are done.
_LONGEST = (
    # without a JVM
    *("announced", "flow", "intake", "dashboard", "journal_processes", "data_pages"),
    *("stack", "object_stores", "where", "pages", "grouping", "streams", "column_metrics"),
    *("workflows", "state_machine", "channels", "process", "contract", "revert_property", "remote"),
    # with one
    *("faults_cli", "docs", "prefect", "cli_real", "dbos", "proofs", "demo_aws", "s3_warehouse"),
    *("aws_lambda", "local_stack", "gate", "ingest", "object_stores", "table_scope", "sql_guard", "lineage", "revert"),
    *("replay", "leases", "sessions", "names", "deployed_nessie", "secured_catalog", "other_journals"),
    *(
        "values_as_written",
        "table_layouts",
        "schema_evolution",
        "manifest_vs_scan",
        "quarantine_release",
        "maintenance",
    ),
    *("key_bitmaps", "modes", "any_engine", "spark_lost", "state_machine_nessie", "docstrings"),
)
_STARTING_SERVERS = pytest.StashKey[set[Path]]()
_MARKED = re.compile(r"\bmark\.(?:jvm|system)\b")
_ALL_MARKED = re.compile(r"^pytestmark = \[?\s*pytest\.mark\.(jvm|system)\b", re.MULTILINE)


def pytest_configure(config: pytest.Config) -> None:
    """Before workers start, make what each of them would else make for itself."""
    if (
        config.getoption("numprocesses", None)
        and "PYTEST_XDIST_WORKER" not in os.environ
        and not sys.dont_write_bytecode
    ):
        given = (config.invocation_params.dir / argument.partition("::")[0] for argument in config.args)
        files = (path for one in given for path in ([one] if one.is_file() else one.rglob("test_*.py")))
        prepare(config, (path for path in files if not pytest_ignore_collect(path, config)))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep what importing made out of the collections to come, which else take half a second each."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave alone, without importing what it imports, a file with no example in it or with no test that is wanted."""
    if collection_path.suffix != ".py":
        return None
    text = collection_path.read_text(encoding="utf-8")
    if not collection_path.name.startswith("test_"):
        return None if ">>>" in text else True
    marked, wanted = _ALL_MARKED.search(text), config.option.markexpr
    if marked and f"not {marked[1]}" in wanted:
        return True
    return True if wanted.startswith("(jvm or system)") and not _MARKED.search(text) else None


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Look for no examples in files of tests, which have none: each function and class would be looked through."""
    found = yield
    is_tests = file_path.name.startswith("test_")
    return [one for one in found if not (is_tests and isinstance(one, DoctestModule))]


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name bytes by their argument: a zip holds the time it was made at, and all workers must find the same names."""
    return argname if isinstance(val, bytes) else None


def pytest_xdist_auto_num_workers() -> int:
    """Return how many workers ``-n auto`` means: one wait in three is for a server, a browser or another process."""
    return (os.cpu_count() or 1) + 1


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    """Give a worker a group or, of all other tests, a whole file: what a file shares is then made once."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadGroupScheduling

    class GroupOrFile(LoadGroupScheduling):  # type: ignore[misc]  # xdist has no types
        def _split_scope(self, nodeid: str) -> str:
            group = super()._split_scope(nodeid)
            return nodeid.partition("::")[0] if group == nodeid else group

    return GroupOrFile(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the tests of the longest files first, and then of those with the most tests, so that short ones end a run."""
    rank = {f"test_{name}.py": at for at, name in enumerate(_LONGEST)}
    tests = Counter(item.path for item in items)
    config.stash[_STARTING_SERVERS] = {item.path for item in items if item.get_closest_marker("jvm")}
    items.sort(key=lambda item: (rank.get(item.path.name, len(rank)), -tests[item.path]))


@pytest.fixture(scope="module", autouse=True)
def _nothing_left_open() -> Iterator[None]:
    """Find what a file of tests left open at its own end, and not at some test of another."""
    yield
    gc.collect()
    gc.freeze()  # what is still in use is not looked at again after each file to come: a minute of all unit tests


def pytest_sessionfinish() -> None:
    """Find what was in use when its file ended, and was left open later."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()  # pytest collects twice more: over a second of each of its processes


@pytest.fixture(scope="session", autouse=True)
def _services_of_aws_are_read_once() -> Iterator[None]:
    """Keep botocore's descriptions of services, which each new client would read again: megabytes of JSON."""
    import botocore.session

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("botocore.session.create_loader", functools.cache(botocore.session.create_loader))
        yield


@pytest.fixture(scope="session")
def class_archives(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Have servers start as a user's do from the second time on; no run of tests is over when the first does."""
    # All workers have this folder in common.
    base = tmp_path_factory.getbasetemp()
    make_class_archives(base.parent if "PYTEST_XDIST_WORKER" in os.environ else base)


@pytest.fixture(scope="module", autouse=True)
def _class_archives_first(request: pytest.FixtureRequest) -> None:
    """Wait for them in files that start servers, and in no other: those that need no JVM are run meanwhile."""
    if request.path in request.config.stash[_STARTING_SERVERS]:
        request.getfixturevalue("class_archives")


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
def stack(home: Path, class_archives: None) -> Iterator[StackState]:
    known = load_settings(home, env={})
    settings = known.model_copy(update={"local": LocalSettings(spark_memory="3g", idle_stop="0s", start_timeout_s=300)})
    local = local_stack(home, settings, SilentNarrator())
    yield local.up()
    local.down()


@pytest.fixture(scope="session")
def nessie_uri(stack: StackState) -> str:
    return stack.nessie_uri


@pytest.fixture(scope="session")
def components(home: Path, stack: StackState) -> Iterator[Components]:
    made = Components(home, load_settings(home, env={}), session=None, narrator=SilentNarrator())
    yield made
    made.close()


@pytest.fixture(scope="session")
def lake(components: Components) -> Iterator[Lake]:
    with Lake(components) as opened:
        yield opened


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One real Postgres; its tests are of xdist group ``postgres``, so that there is only one."""
    with running_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """One real S3 server."""
    from support.s3_server import S3Server

    server = S3Server()
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture(scope="module")
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrefectServer]:
    """A real Prefect server for a file of tests: one that nobody uses works all the time, 3 % of a processor."""
    from support.prefect_server import PrefectServer

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
