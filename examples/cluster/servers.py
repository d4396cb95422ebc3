"""The servers of the cluster: which runs on which host, and with what settings."""

from __future__ import annotations

import os
import secrets
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from hosts import DOMAIN, Network
from lakegate.local import artifacts
from lakegate.local.servers import SPARK_JAVA_OPTIONS, spark_answers
from lakegate.model.artifacts import ICEBERG, NESSIE, S3_ARTIFACTS
from lakegate.progress import SilentNarrator
from support.postgres import USER, running_postgres
from support.s3_server import REGION, S3Server
from support.tls_proxy import Authority, tls_proxy

PORTS = {"store": 8333, "journal": 5432, "nessie": 19120, "master": 7077, "spark": 15002, "gate": 8181}
_BEHIND_TLS = 15003
_STORE = f"http://store.{DOMAIN}:{PORTS['store']}"
_SMALL = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
_IPV4 = "-Djava.net.preferIPv4Stack=true"
# PySpark's launcher asks for a module that the bundled Java lacks, and that Spark doesn't need.
_JAVA = """#!/bin/bash
for option; do [ "$option" = --add-modules=jdk.incubator.vector ] || options+=("$option"); done
exec {java} "${{options[@]}}"
"""
_SETTINGS = f"""[catalog]
uri = "http://nessie.{DOMAIN}:{PORTS["nessie"]}/api/v2"
warehouse = "s3://lake/warehouse"

[engine]
url = "sc://spark.{DOMAIN}:{PORTS["spark"]}"
token = "file:DISK/spark-token"
tls = true
ca_file = "DISK/lake.pem"

[journal]
url = "postgresql://{USER}@journal.{DOMAIN}:{PORTS["journal"]}/postgres"
password = "file:DISK/journal-password"
tls = true
ca_file = "DISK/lake.pem"

[s3]
endpoint = "{_STORE}"
region = "{REGION}"
path_style = true
"""


def variables(network: Network) -> dict[str, str]:
    """Return what every program of the cluster finds in its environment, besides what all programs need."""
    return {
        "XDG_CACHE_HOME": str(artifacts.cache_folder().parent),  # the jars: installed software, as in an image
        "AWS_SHARED_CREDENTIALS_FILE": str(network.disk / "aws-credentials"),
        "AWS_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
        "SSL_CERT_FILE": str(network.disk / "lake.pem"),
        "REQUESTS_CA_BUNDLE": str(network.disk / "lake.pem"),  # PyIceberg
    }


def prepare(network: Network) -> None:
    """Write what the hosts know before they start: certificates, tokens, settings."""
    artifacts.prepare(SilentNarrator(), artifacts=(ICEBERG, NESSIE, *S3_ARTIFACTS))
    java = network.base / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(_JAVA.format(java=artifacts.java()), encoding="utf-8")
    java.chmod(0o755)
    folder = network.base / "authority"
    folder.mkdir(mode=0o700)
    authority = Authority(folder, "lake")
    for host in ("journal", "spark", "gate"):
        pair = authority.pair(host=f"{host}.{DOMAIN}").rename(network.files(host) / "server.pem")
        pair.chmod(0o600)
    token, reader = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
    access, secret = secrets.token_hex(10).upper(), secrets.token_hex(20)
    keys = f"[default]\naws_access_key_id = {access}\naws_secret_access_key = {secret}\n"
    password = secrets.token_hex(16)
    _write(network, "journal", {"journal-password": password})
    for host in (host for host in network.hosts if host.startswith(("store", "worker"))):
        _write(network, host, {"aws-credentials": keys})
    _write(network, "spark", {"aws-credentials": keys, "spark-token": token})
    settings = _SETTINGS.replace("DISK", str(network.disk))
    trusted = authority.file.read_text("ascii")
    client = {
        "lake.pem": trusted,
        "spark-token": token,
        "journal-password": password,
        "aws-credentials": keys,
        "lakegate.toml": settings,
    }
    for host in (host for host in network.hosts if host.startswith(("client", "gate"))):
        _write(network, host, {**client, "reader-token": reader})


def _write(network: Network, host: str, files: Mapping[str, str]) -> None:
    for name, content in files.items():
        path = network.files(host) / name
        path.write_text(content, encoding="utf-8")
        path.chmod(0o600)


def run(network: Network, host: str, memory: str) -> None:
    """Run a host's server until it ends. This process is on that host already."""
    kind = host.partition("-")[0]
    if kind == "store":
        _run_store()
    elif kind == "journal":
        _run_journal()
    elif kind == "nessie":
        _exec(_nessie(), {})
    elif kind == "master":
        _exec(_daemon("master.Master", "--host", f"master.{DOMAIN}", "--port", "7077"), _spark(network))
    elif kind == "worker":
        place = ("--host", f"{host}.{DOMAIN}", "--cores", "1", "--memory", memory, "--work-dir", "work")
        _exec(_daemon("worker.Worker", *place, f"spark://master.{DOMAIN}:7077"), _spark(network))
    elif kind == "spark":
        _run_spark(network, memory)
    else:
        pair = str(network.disk / "server.pem")
        secure = ("--tls-certificate", pair, "--tls-key", pair)
        reader = f"file:{network.disk / 'reader-token'}"
        serve = ("serve", "--host", "0.0.0.0", "--port", "8181", "--token", reader, *secure)  # noqa: S104
        _exec([str(Path(sys.executable).parent / "lakegate"), *serve], {})


def _run_store() -> None:
    lines = Path("aws-credentials").read_text(encoding="utf-8").split()
    folder = Path("objects").resolve()
    is_new = not folder.exists()
    folder.mkdir(exist_ok=True)
    server = S3Server(open_port=PORTS["store"], keys=(lines[3], lines[6]), folder=folder)
    server.start()
    for bucket in ("lake", "landing") if is_new else ():
        server.client.create_bucket(Bucket=bucket)
    Path("ready").touch()
    threading.Event().wait()


def _run_journal() -> None:
    folder = Path("data").resolve()
    folder.mkdir(exist_ok=True)
    password = Path("journal-password").read_text(encoding="utf-8")
    with running_postgres(folder, password) as server, server.tls(Path("server.pem")):
        _pass_on(server.port, PORTS["journal"], None)


def _run_spark(network: Network, memory: str) -> None:
    token = Path("spark-token").read_text(encoding="utf-8")
    secret = {"SPARK_CONNECT_AUTHENTICATE_TOKEN": token}
    spark = subprocess.Popen(_connect(network, memory), env={**os.environ, **_spark(network), **secret})
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain("server.pem")
    context.set_alpn_protocols(["h2"])
    while spark.poll() is None and not spark_answers(_BEHIND_TLS):
        time.sleep(0.1)
    _pass_on(_BEHIND_TLS, PORTS["spark"], context, until=spark)


def _pass_on(
    target: int, port: int, context: ssl.SSLContext | None, *, until: subprocess.Popen[bytes] | None = None
) -> None:
    """Let other hosts reach a server that listens on this one's loopback interface only."""
    with ExitStack() as stack:
        stack.enter_context(tls_proxy(target, context, host="0.0.0.0", port=port, listens_in=False))  # noqa: S104
        if until is None:
            threading.Event().wait()
        else:
            until.wait()


def _nessie() -> list[str]:
    jar = artifacts.prepare(SilentNarrator(), artifacts=[NESSIE])[NESSIE]
    properties = {
        "quarkus.http.host": "0.0.0.0",  # noqa: S104
        "quarkus.http.port": PORTS["nessie"],
        "quarkus.management.host": "127.0.0.1",
        "quarkus.otel.sdk.disabled": "true",
        "nessie.version.store.type": "ROCKSDB",
        "nessie.version.store.persist.rocks.database-path": "nessie",
    }
    options = (*_SMALL, _IPV4, "-Xmx384m", *(f"-D{key}={value}" for key, value in properties.items()))
    return [str(artifacts.java()), *options, "-jar", str(jar)]


def _spark(network: Network) -> dict[str, str]:
    return {
        "JAVA_HOME": str(network.base / "java"),
        "SPARK_HOME": str(artifacts.spark_jars().parent),
        "SPARK_LOCAL_HOSTNAME": os.uname().nodename,
        "SPARK_SCALA_VERSION": "2.13",  # else it looks for a build of its own
    }


def _daemon(name: str, *options: str) -> list[str]:
    classes = ("-cp", f"{artifacts.spark_jars()}/*", f"org.apache.spark.deploy.{name}")
    return [str(artifacts.java()), *_SMALL, _IPV4, "-Xmx256m", *SPARK_JAVA_OPTIONS, *classes, *options]


def _connect(network: Network, memory: str) -> list[str]:
    jars = artifacts.prepare(SilentNarrator(), artifacts=(ICEBERG, *S3_ARTIFACTS))
    extra = os.pathsep.join(str(jar) for jar in jars.values())
    properties = {
        "spark.master": f"spark://master.{DOMAIN}:7077",
        "spark.app.name": "lakegate",
        "spark.driver.host": f"spark.{DOMAIN}",
        "spark.executor.memory": memory,
        "spark.executor.extraClassPath": extra,
        "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:-UsePerfData -Duser.timezone=UTC",
        "spark.speculation": "true",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": _BEHIND_TLS,
        "spark.connect.execute.manager.detachedTimeout": "30s",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": 4,
        "spark.local.dir": network.disk / "tmp",
        "spark.sql.warehouse.dir": (network.disk / "unused").as_uri(),
        "spark.ui.enabled": "false",
        "spark.log.level": "WARN",
        "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "spark.hadoop.fs.s3a.aws.credentials.provider": (
            "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
        ),
        "spark.hadoop.fs.s3a.endpoint": _STORE,
        "spark.hadoop.fs.s3a.endpoint.region": REGION,
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }
    java = (str(artifacts.java()), *_SMALL, _IPV4, f"-Xmx{memory}", "-Duser.timezone=UTC", *SPARK_JAVA_OPTIONS)
    classes = ("-cp", f"{artifacts.spark_jars()}/*:{extra}", "org.apache.spark.deploy.SparkSubmit")
    settings = (word for key, value in properties.items() for word in ("--conf", f"{key}={value}"))
    service = ("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", *settings, "spark-internal")
    return [*java, *classes, *service]


def _exec(command: list[str], environment: Mapping[str, str]) -> None:
    os.execve(command[0], command, {**os.environ, **environment})  # noqa: S606 - there is nothing for a shell to do
