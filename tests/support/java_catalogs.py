"""Catalogs that are Java programs without a command line of use: Iceberg's own REST test server, and Hive's metastore.

Both would listen on all addresses if they were started as their own main programs. So a Java Virtual Machine is told by
Py4J, which PySpark brings along, to start them on the loopback interface.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.java_gateway import JavaGateway

from lakegate.local.artifacts import java, prepare, spark_jars
from lakegate.model.artifacts import Artifact
from lakegate.progress import SilentNarrator
from support.ports import free_port
from support.target_catalogs import RunningCatalog, answers
from support.waiting import wait_until

if TYPE_CHECKING:
    from support.postgres import PostgresServer

_ICEBERG, _JETTY, _VERSION, _JETTY_VERSION = "org.apache.iceberg", "org.eclipse.jetty", "1.10.0", "11.0.25"
_TESTS = Artifact(
    group=_ICEBERG,
    name="iceberg-core",
    version=_VERSION,
    classifier="tests",
    size_bytes=1512186,
    sha256="caa79473e760a6ea0740888832d85868359142640d34f472cd565763bb9b90c7",
)
_POSTGRES = Artifact(
    group="org.postgresql",
    name="postgresql",
    version="42.7.11",
    size_bytes=1142677,
    sha256="1981b31d3993c58702783c1cddf10a34e48c1f413d70ff1cb6def0a143484647",
)
_OTHERS = (
    (_ICEBERG, "iceberg-core", _VERSION, 2351440, "54091489dbdcb31b5a4514372abfc908a7b0be69f76e785f1e82279be4fbd6cc"),
    (_ICEBERG, "iceberg-api", _VERSION, 673277, "627061d401dba9d1a8cada2da6394640c2e803102bb676fb34e5f65503cf2c51"),
    (_ICEBERG, "iceberg-common", _VERSION, 31782, "5ce6ec8262b4c6f8151d9e36ebe013bd23ec0f310508173f72c43bc073d5f519"),
    (
        *(_ICEBERG, "iceberg-bundled-guava", _VERSION, 1794018),
        "05b79072e19071b1bcf7a4e382d624b3b2ccad6eaf79627676219bb48e4e834d",
    ),
    (
        *("com.github.ben-manes.caffeine", "caffeine", "2.9.3", 912143),
        "1e0a7bbef1dd791653143f3f05d0e489934bf5481e58a87c9e619cd46b68729b",
    ),
    (
        *("org.apache.httpcomponents.core5", "httpcore5", "5.3.4", 908601),
        "f2b2fd7a0164e8c3120cd8437bc9fea439239e165c17262b3e907daa7e979f80",
    ),
    (
        *("org.apache.httpcomponents.client5", "httpclient5", "5.5", 954979),
        "496b4b0e8d5f3a8139a5d2638486d304758bac3a9c39d76989f663cfd9354fc9",
    ),
    (_JETTY, "jetty-util", _JETTY_VERSION, 571524, "801ce0baaaf9a269fade7172dadd290c707f3bcdaf22b4292c323f6548b05959"),
    (_JETTY, "jetty-io", _JETTY_VERSION, 222274, "6d5859f4ce88156c86aac0fa62d27a768d8f100aa6da5c13a82ec3c9ea16a349"),
    (
        *(_JETTY, "jetty-server", _JETTY_VERSION, 800034),
        "710652a7dccc0590cd0af2798dd3c4c93a777e7fb591d89d7cf02a4839bf0dd8",
    ),
    (
        *(_JETTY, "jetty-servlet", _JETTY_VERSION, 165626),
        "641eb7725c8aa27ff4f35e71b826f6c3fff5ce745d6997e520eafb887e3623ec",
    ),
    (
        *(_JETTY, "jetty-security", _JETTY_VERSION, 121716),
        "861a0be80a4dfa7935a89113d4ac4ed76505f079b22c9e2f1a84017908bbcd57",
    ),
    (_JETTY, "jetty-http", _JETTY_VERSION, 273637, "7ae3f8055557e6cea13980eaa37eaf9d546cd57a2d358aa7cb2e5de7c4946169"),
    (
        *("org.eclipse.jetty.toolchain", "jetty-jakarta-servlet-api", "5.0.2", 605086),
        "efb20997729f32bfa6c8a8319037c353f7ad460d5d49f336bf232998ea2358db",
    ),
)
_OPENED = ("lang", "lang.invoke", "lang.reflect", "io", "net", "nio", "util", "util.concurrent")
_OPTIONS = (
    *("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    *(f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in _OPENED),
)


@contextmanager
def iceberg_rest(server: PostgresServer, folder: Path) -> Iterator[RunningCatalog]:
    """Run the REST catalog of Iceberg's own tests, on a JDBC catalog in Postgres."""
    port = free_port()
    with _java(folder, _iceberg_jars()) as jvm:
        properties = jvm.java.util.HashMap()
        for key, value in {
            "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            "uri": f"jdbc:postgresql://127.0.0.1:{server.port}/postgres",
            "jdbc.user": "lakegate",
            "jdbc.password": server.password,
            "jdbc.schema-version": "V1",
            "warehouse": (folder / "rest").as_uri(),
            "io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
        }.items():
            properties.put(key, value)
        rest = jvm.org.apache.iceberg.rest
        hadoop = jvm.org.apache.hadoop.conf.Configuration()
        catalog = jvm.org.apache.iceberg.CatalogUtil.buildIcebergCatalog("rest", properties, hadoop)
        jetty = jvm.org.eclipse.jetty
        context = jetty.servlet.ServletContextHandler()
        holder = jetty.servlet.ServletHolder(rest.RESTCatalogServlet(rest.RESTCatalogAdapter(catalog)))
        context.addServlet(holder, "/*")
        listening = jetty.server.Server(jvm.java.net.InetSocketAddress("127.0.0.1", port))
        listening.setHandler(context)
        listening.start()
        found = {"type": "rest", "uri": f"http://127.0.0.1:{port}", "warehouse": (folder / "rest").as_uri()}
        yield _ready(RunningCatalog("Iceberg's REST server", found, {}))


@contextmanager
def hive(folder: Path) -> Iterator[RunningCatalog]:
    """Run Hive's metastore from Spark's jars, on Derby."""
    port = free_port()
    with _java(folder, []) as jvm:
        metastore = jvm.org.apache.hadoop.hive.metastore
        conf = jvm.org.apache.hadoop.hive.conf.HiveConf()
        for key, value in {
            "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder / 'metastore'};create=true",
            "datanucleus.schema.autoCreateAll": "true",
            "datanucleus.connectionPoolingType": "none",
            "hive.metastore.schema.verification": "false",
            "hive.metastore.warehouse.dir": (folder / "hive").as_uri(),
        }.items():
            conf.set(key, value)
        metastore.txn.TxnDbUtil.prepDb(conf)
        plain = metastore.HiveMetaStore.HMSHandler("lakegate", conf, False)  # noqa: FBT003 - Java's
        handler = metastore.HiveMetaStore.newRetryingHMSHandler(plain, conf, True)  # noqa: FBT003 - Java's
        thrift = jvm.org.apache.thrift
        socket = thrift.transport.TServerSocket(jvm.java.net.InetSocketAddress("127.0.0.1", port))
        options = thrift.server.TThreadPoolServer.Args(socket)
        options.processor(metastore.api.ThriftHiveMetastore.Processor(handler))
        listening = thrift.server.TThreadPoolServer(options)
        threading.Thread(target=_serve, args=(listening,), daemon=True).start()
        found = {"type": "hive", "uri": f"thrift://127.0.0.1:{port}", "warehouse": (folder / "hive").as_uri()}
        yield _ready(RunningCatalog("Hive 2.3.10", found, {}))


def _serve(listening: Any) -> None:
    try:
        listening.serve()
    except Exception:  # noqa: BLE001 - it ends with its virtual machine
        return


def _ready(catalog: RunningCatalog) -> RunningCatalog:
    wait_until(lambda: answers(catalog), what=catalog.name)
    return catalog


def _iceberg_jars() -> list[Path]:
    wanted = [
        Artifact(group=group, name=name, version=version, size_bytes=size, sha256=sha)
        for group, name, version, size, sha in _OTHERS
    ]
    # Ivy takes one jar of a module at a time.
    found: list[Mapping[Artifact, Path]] = [
        prepare(SilentNarrator(), artifacts=one) for one in ([_TESTS], [_POSTGRES, *wanted])
    ]
    return [path for jars in found for path in jars.values()]


@contextmanager
def _java(folder: Path, jars: list[Path]) -> Iterator[Any]:
    """Run a Java Virtual Machine with these jars and Spark's until the body ends."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "java.log").open("w") as log:
        gateway = JavaGateway.launch_gateway(
            classpath=":".join([*map(str, jars), f"{spark_jars()}/*"]),
            javaopts=[*_OPTIONS, f"-Dderby.system.home={folder}", f"-Djava.io.tmpdir={folder}"],
            java_path=str(java()),
            die_on_exit=True,
            enable_auth=True,
            redirect_stdout=log,
            redirect_stderr=log,
            cwd=str(folder),
        )
        try:
            yield gateway.jvm
        finally:
            gateway.shutdown()
            gateway.java_process.kill()
            gateway.java_process.communicate()
