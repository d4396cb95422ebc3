"""The two servers: their command lines and health checks.

Both listen on the loopback interface only, and send no telemetry. Every command checks their health, so a check must
take milliseconds: a few bytes over a plain socket, no client library.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from lakegate.config import LocalSettings
from lakegate.local.archives import archive_options
from lakegate.local.artifacts import java, spark_jars, spark_version
from lakegate.local.process import marker_options
from lakegate.local.state import ServiceName, StackFolder
from lakegate.local.stores import SparkStores, spark_master, store_artifacts, store_properties, store_variables
from lakegate.model.artifacts import ICEBERG, NESSIE, Artifact

_MIB = 2**20
_MIN_SPARK_MIB = 1024
_MAX_SPARK_MIB = 8192
_FEW_CORES = 4
_CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))

# The options of Spark's own launcher (JavaModuleOptions in Spark 4.1), except `--add-modules=jdk.incubator.vector`,
# which the bundled JRE lacks and Spark doesn't need.
SPARK_JAVA_OPTIONS = (
    *(
        f"--add-opens={package}=ALL-UNNAMED"
        for package in (
            *("java.base/java.lang", "java.base/java.lang.invoke", "java.base/java.lang.reflect", "java.base/java.io"),
            *("java.base/java.net", "java.base/java.nio", "java.base/java.util", "java.base/java.util.concurrent"),
            *("java.base/java.util.concurrent.atomic", "java.base/sun.nio.ch", "java.base/sun.nio.cs"),
            *("java.base/sun.security.action", "java.base/sun.util.calendar"),
            "java.security.jgss/sun.security.krb5",
        )
    ),
    "-Djdk.reflect.useDirectMethodHandle=false",
    "-Dio.netty.tryReflectionSetAccessible=true",
)
# RFC 9113 §3.4: the client's preface; §6.5: an empty SETTINGS frame (length 0, type 4, no flags, stream 0).
_HTTP2_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
_HTTP2_SETTINGS = 4
_HTTP2_FRAME_HEADER_BYTES = 9
_HTTP_REQUEST = b"GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
_HTTP_OK = b"HTTP/1.1 200 "

_TAIL_BYTES = 65536
_MAX_LINE = 300
_ERROR_LINE = re.compile(r"\bERROR\b|\bFATAL\b|\bSEVERE\b|Exception|Caused by|Error:|^Error |Could not|[Uu]nrecognized")
_BIND_FAILED = re.compile(r"BindException|[Aa]ddress already in use|Port \d+ seems to be in use|QuarkusBindException")


def nessie_answers(port: int, *, timeout_s: float = 1.0) -> bool:
    """Return whether Nessie's API v2 answers on ``port``."""
    return _exchange(port, _HTTP_REQUEST % b"/api/v2/config", len(_HTTP_OK), timeout_s) == _HTTP_OK


def spark_answers(port: int, *, timeout_s: float = 1.0) -> bool:
    """Return whether a gRPC server answers on ``port``: an HTTP/2 server starts with a SETTINGS frame."""
    frame = _exchange(port, _HTTP2_HELLO, _HTTP2_FRAME_HEADER_BYTES, timeout_s)
    return len(frame) == _HTTP2_FRAME_HEADER_BYTES and frame[3] == _HTTP2_SETTINGS


def most_relevant_line(log: Path) -> str | None:
    """Return the log's line that most likely shows what went wrong: the last error, or else the last line."""
    lines = [line.strip() for line in _tail(log).splitlines() if line.strip()]
    errors = [line for line in lines if _ERROR_LINE.search(line) and not line.startswith("at ")]
    chosen = (errors or lines)[-1:]
    return chosen[0][:_MAX_LINE] if chosen else None


def failed_to_bind(log: Path) -> bool:
    """Return whether a server ended because its port was taken."""
    return _BIND_FAILED.search(_tail(log)) is not None


def _tail(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _exchange(port: int, question: bytes, answer_bytes: int, timeout_s: float) -> bytes:
    """Return the first bytes of a server's answer; fewer if it closes the connection, none if it can't be reached."""
    answer = b""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
            connection.sendall(question)
            while len(answer) < answer_bytes:
                part = connection.recv(answer_bytes - len(answer))
                if not part:
                    break
                answer += part
    except OSError:
        return b""
    return answer


@dataclass(frozen=True, slots=True)
class Launch:
    """Everything that one start of a server depends on.

    Attributes:
        token: Passed in the environment, so that ``ps`` doesn't show it.
    """

    folder: StackFolder
    settings: LocalSettings
    jars: Mapping[Artifact, Path]
    stores: SparkStores
    instance: str
    port: int
    management_port: int
    token: str


@dataclass(frozen=True, slots=True)
class LocalServer:
    """One of the two servers."""

    name: ServiceName
    title: str
    has_token: bool
    stop_grace_s: float
    version: Callable[[], str]
    command: Callable[[Launch], tuple[str, ...]]
    variables: Callable[[Launch], Mapping[str, str]]
    answers: Callable[[int], bool]
    address: Callable[[int], str]


def default_spark_memory(total_bytes: int) -> str:
    """Return Spark's default heap size: a quarter of the memory, between 1 and 8 GiB.

    Example:
        >>> default_spark_memory(2 * 2**30), default_spark_memory(16 * 2**30), default_spark_memory(256 * 2**30)
        ('1024m', '4096m', '8192m')
    """
    return f"{min(max(total_bytes // 4 // _MIB, _MIN_SPARK_MIB), _MAX_SPARK_MIB)}m"


def compiler_options(cores: int) -> tuple[str, ...]:
    """Return the options for Java's compilers in Spark: on few cores, C2 only compiles code that is ten times as hot.

    Its threads would take CPU time from the work, and more of it than the faster code saves, unless Spark runs for a
    long time.

    Example:
        >>> compiler_options(16)
        ()
    """
    thresholds = {"Invocation": 50_000, "MinInvocation": 6_000, "Compile": 150_000, "BackEdge": 400_000}
    return tuple(f"-XX:Tier4{name}Threshold={calls}" for name, calls in thresholds.items() if cores <= _FEW_CORES)


def machine_memory() -> int:
    """Return the memory that this process may use, in bytes: the machine's, or its container's if that's less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in _CGROUP_LIMITS:
        try:
            total = min(total, int(limit.read_text(encoding="ascii")))
        except (OSError, ValueError):
            continue  # no such file, or "max"
    return total


def _java_options(launch: Launch, name: ServiceName, memory: str) -> tuple[str, ...]:
    return (
        f"-Xmx{memory}",
        "-XX:-UsePerfData",  # otherwise Java leaves a file in /tmp
        f"-XX:ErrorFile={launch.folder.logs / f'{name}-crash-%p.log'}",
        f"-Djava.io.tmpdir={launch.folder.scratch(name)}",
        "-Djava.awt.headless=true",
        "-Dfile.encoding=UTF-8",
        *marker_options(launch.folder.home, name, launch.instance),
        *archive_options(name),
    )


def _nessie_command(launch: Launch) -> tuple[str, ...]:
    properties = {
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": launch.port,
        "quarkus.http.access-log.enabled": "false",  # it would grow by a line per request, forever
        "quarkus.management.host": "127.0.0.1",
        "quarkus.management.port": launch.management_port,
        "quarkus.otel.sdk.disabled": "true",
        "quarkus.shutdown.timeout": "5s",
        "nessie.version.store.type": "ROCKSDB",
        "nessie.version.store.persist.rocks.database-path": launch.folder.nessie_store,
        "nessie.server.default-branch": "main",
    }
    return (
        str(java()),
        *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError"),
        *_java_options(launch, "nessie", launch.settings.nessie_memory),
        *(f"-D{key}={value}" for key, value in properties.items()),
        *("-jar", str(launch.jars[NESSIE])),
    )


def _spark_command(launch: Launch) -> tuple[str, ...]:
    cores = os.cpu_count() or 1
    properties = {
        "spark.app.name": "lakegate",
        "spark.master": spark_master(launch.stores),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": launch.port,
        # A killed client can't cancel its write, which would otherwise continue for the default five minutes.
        "spark.connect.execute.manager.detachedTimeout": "30s",
        "spark.connect.execute.manager.maintenanceInterval": "10s",
        "spark.connect.session.manager.defaultSessionTimeout": "8h",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": max(2 * cores, 4),
        # Not percent-encoded: Hadoop would take %20 as part of the folder's name.
        "spark.sql.warehouse.dir": f"file://{launch.folder.scratch('spark') / 'warehouse'}",
        # Relative, since Spark splits this setting at commas, which a folder's name may contain.
        "spark.local.dir": launch.folder.scratch("spark").relative_to(launch.folder.path),
        "spark.ui.enabled": "false",
        "spark.log.level": "WARN",
        **store_properties(launch.stores),
    }
    # Stores' jars at the end: an archive of classes stays valid for any class path that starts with the archive's own.
    stores = (launch.jars[artifact] for artifact in store_artifacts(launch.stores))
    jars = map(str, (launch.jars[ICEBERG], spark_jars() / "*", *stores))
    memory = launch.settings.spark_memory or default_spark_memory(machine_memory())
    return (
        str(java()),
        *_java_options(launch, "spark", memory),
        *compiler_options(cores),
        # For whatever reads Java's default time zone instead of the session's: daylight saving time skips an hour.
        "-Duser.timezone=UTC",
        f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}",
        *(*SPARK_JAVA_OPTIONS, "-cp", os.pathsep.join(jars)),
        *("org.apache.spark.deploy.SparkSubmit", "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *(part for key, value in properties.items() for part in ("--conf", f"{key}={value}")),
        "spark-internal",
    )


def _spark_variables(launch: Launch) -> Mapping[str, str]:
    return {
        **store_variables(launch.stores),
        "SPARK_CONNECT_AUTHENTICATE_TOKEN": launch.token,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "TMPDIR": str(launch.folder.scratch("spark")),
    }


NESSIE_SERVER = LocalServer(
    name="nessie",
    title="Nessie",
    has_token=False,
    stop_grace_s=30.0,
    version=lambda: NESSIE.version,
    command=_nessie_command,
    variables=lambda launch: {"TMPDIR": str(launch.folder.scratch("nessie"))},
    answers=nessie_answers,
    address="http://127.0.0.1:{}/api/v2".format,
)
SPARK_SERVER = LocalServer(
    name="spark",
    title="Spark Connect",
    has_token=True,
    stop_grace_s=30.0,  # the first time, it writes its archive of classes
    version=spark_version,
    command=_spark_command,
    variables=_spark_variables,
    answers=spark_answers,
    address="sc://localhost:{}".format,
)
SERVERS: dict[ServiceName, LocalServer] = {"nessie": NESSIE_SERVER, "spark": SPARK_SERVER}
