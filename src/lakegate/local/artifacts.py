"""The jars that no Python package carries: declared here, fetched once by Apache Ivy, kept in the user's cache.

Ivy comes with PySpark and knows where Maven artefacts live, so there is no download code and no address in our source.
A jar that somebody else put into the cache folder is as good as a fetched one if its SHA-256 is right: that is how a
machine without network is prepared.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from urllib.parse import urlsplit
from xml.sax.saxutils import quoteattr

from lakegate.errors import LocalStackError
from lakegate.local.java import ivy_jar, java, user_java_options
from lakegate.local.locking import locked
from lakegate.local.process import environment
from lakegate.local.truststore import trust_options
from lakegate.protocols import Narrator, Step

_LOCK_TIMEOUT_S = 1800.0
_STALL_TIMEOUT_S = 120.0
_POLL_S = 0.2
_IVY_EXTRA_BYTES = 16 * 2**20
_MAX_REASON = 300
# What Ivy says at its most talkative, the most telling first; otherwise it keeps to "not found", whatever happened.
_IVY_REASONS = (
    re.compile(r"No space left on device"),
    re.compile(r"(?<=\()(?:java|javax)\.[\w.]+Exception: [^\n]+(?=\))"),
    re.compile(r"Host \S+ not found"),
    re.compile(r"HTTP response status: [^\n]+"),
    re.compile(r"\b(?:java|javax)\.[\w.]+(?:Exception|Error)\b[^\n]*"),
    re.compile(r"module not found: [^\n]+|\[FAILED *\][^\n]+"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """One jar in Maven's words; ``size_bytes`` and ``sha256`` are of the jar that lakegate was tested with."""

    group: str
    name: str
    version: str
    classifier: str | None = None
    size_bytes: int
    sha256: str

    @property
    def file_name(self) -> str:
        """Name of the jar in the cache, Maven's own."""
        return "-".join(part for part in (self.name, self.version, self.classifier) if part) + ".jar"


ICEBERG = Artifact(
    group="org.apache.iceberg",
    name="iceberg-spark-runtime-4.1_2.13",
    version="1.12.0",
    size_bytes=48_309_426,
    sha256="3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82",
)
NESSIE = Artifact(
    group="org.projectnessie.nessie",
    name="nessie-quarkus",
    version="0.99.0",
    classifier="runner",
    size_bytes=245_069_033,
    sha256="ce9fa33e2878bf5ea3981876b9e6204cabc0362b3dd82326b10e47271a78c417",
)
ARTIFACTS = (ICEBERG, NESSIE)
AWS = Artifact(
    group="org.apache.iceberg",
    name="iceberg-aws-bundle",
    version="1.12.0",
    size_bytes=69_034_612,
    sha256="dd7e49ffa4ac9b215bed846581991259e3aec9bb2fa08d6cec029c46cd66d957",
)
HADOOP_AWS = Artifact(
    group="org.apache.hadoop",
    name="hadoop-aws",
    version="3.4.2",
    size_bytes=936_997,
    sha256="d2d24e6b715b5656b9d238bf13b6682a07e2004dd36aad74a73aeb854319f4d9",
)
# What hadoop-aws uses of the AWS SDK and Iceberg's bundle of the SDK lacks; the version is the bundle's.
_SDK = (
    ("s3-transfer-manager", 282_942, "7bef0ea4efd5e0860bab63e08317040951edb51b72a5be734284c28b8324ab87"),
    ("apache-client", 77_826, "0b00ae3d55c3d1213ca47b5651dc4c2a0080fc9b6192dde3d53c3da6c1811bcb"),
    ("netty-nio-client", 308_076, "4faaae2db7a602c2ae6241fc6c0fe9d55f0e46886c3713cd5d2fef2f677ea64a"),
)
S3_ARTIFACTS = (
    AWS,
    HADOOP_AWS,
    *(
        Artifact(group="software.amazon.awssdk", name=name, version="2.54.17", size_bytes=size_bytes, sha256=sha256)
        for name, size_bytes, sha256 in _SDK
    ),
)
"""What Spark needs besides to reach S3; fetched when that is first asked for."""


def cache_folder() -> Path:
    """Return where jars are kept for all of this user's projects (``XDG_CACHE_HOME`` is honoured)."""
    import platformdirs  # noqa: PLC0415 - not needed while the stack runs

    return Path(platformdirs.user_cache_dir("lakegate", appauthor=False))


def prepare(
    narrator: Narrator, *, artifacts: Sequence[Artifact] = ARTIFACTS, cache: Path | None = None
) -> Mapping[Artifact, Path]:
    """Make sure that all jars are in the cache, and right.

    Needs the network only for jars that are missing or damaged. Safe to call from several processes at once.

    Args:
        narrator: Told of the fetch, with bytes done.
        artifacts: What to fetch.
        cache: Folder to keep them in; default :func:`cache_folder`.

    Returns:
        Where each jar is.

    Raises:
        LocalStackError: When the cache cannot be written, or a jar cannot be fetched or is not the one expected.
    """
    folder = cache or cache_folder()
    jars = {artifact: folder / "jars" / artifact.file_name for artifact in artifacts}
    if all(_is_known_good(path, artifact) for artifact, path in jars.items()):
        return MappingProxyType(jars)
    try:
        (folder / "jars").mkdir(parents=True, exist_ok=True)
        doing = f"fetching jars into {folder}"
        with locked(folder / "fetch.lock", doing, narrator, timeout_s=_LOCK_TIMEOUT_S):
            missing = [artifact for artifact, path in jars.items() if not _is_good(path, artifact)]
            if missing:
                _fetch(missing, folder, narrator)
    except OSError as error:
        raise LocalStackError(
            f"The cache {folder} cannot be used: {error.filename or ''} {error.strerror or error}.".replace(
                ":  ", ": "
            ),
            hint="Make it a folder that you may write to, or point XDG_CACHE_HOME at one.",
            folder=str(folder),
        ) from error
    return MappingProxyType(jars)


def ivy_module(artifacts: Sequence[Artifact]) -> str:
    """Return the Ivy file that asks for exactly these jars, and nothing they depend on.

    Source: https://ant.apache.org/ivy/history/2.5.3/ivyfile.html; ``m:classifier`` is Maven's classifier there.
    """
    lines = [
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">',
        '  <info organisation="lakegate" module="local"/>',
        '  <configurations><conf name="default"/></configurations>',
        "  <dependencies>",
    ]
    for artifact in artifacts:
        classifier = f" m:classifier={quoteattr(artifact.classifier)}" if artifact.classifier else ""
        lines += [
            f"    <dependency org={quoteattr(artifact.group)} name={quoteattr(artifact.name)}",
            f'      rev={quoteattr(artifact.version)} transitive="false" conf="default->master">',
            f'      <artifact name={quoteattr(artifact.name)} type="jar"{classifier}/>',
            "    </dependency>",
        ]
    return "\n".join([*lines, "  </dependencies>", "</ivy-module>", ""])


def proxy_options(proxies: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return the Java options for the proxies that Python would use; Java looks at no variables of its own accord.

    Args:
        proxies: Proxy by scheme, and hosts to reach without one as ``no``; default those of the environment.

    Example:
        >>> proxy_options({"https": "http://proxy.example.com:3128", "no": "localhost,.example.com"})[:2]
        ('-Dhttps.proxyHost=proxy.example.com', '-Dhttps.proxyPort=3128')
    """
    if ".proxyHost=" in user_java_options():
        return ()
    if proxies is None:
        from urllib.request import getproxies  # noqa: PLC0415 - slow to import, and not needed while the stack runs

        proxies = getproxies()
    options: list[str] = []
    for scheme in ("http", "https"):
        proxy = urlsplit(proxies.get(scheme, ""))
        if proxy.hostname:
            options += [f"-D{scheme}.proxyHost={proxy.hostname}", f"-D{scheme}.proxyPort={proxy.port or 80}"]
    excluded = [host.strip() for host in proxies.get("no", "").split(",") if host.strip()]
    if options and excluded:
        options.append("-Dhttp.nonProxyHosts=" + "|".join(f"*{h}" if h.startswith(".") else h for h in excluded))
    return tuple(options)


def _fetch(missing: Sequence[Artifact], folder: Path, narrator: Narrator) -> None:
    needed = sum(artifact.size_bytes for artifact in missing) + _IVY_EXTRA_BYTES
    for leftover in folder.glob("fetch-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise LocalStackError(
            f"The disk of {folder} has only {free // 2**20} MiB left; {needed // 2**20} MiB are to be fetched.",
            hint="Free some space there, or point XDG_CACHE_HOME at another disk.",
            folder=str(folder),
        )
    work = Path(tempfile.mkdtemp(prefix="fetch-", dir=folder))
    names = " and ".join(f"{artifact.name} {artifact.version}" for artifact in missing)
    try:
        with narrator.step(f"Fetching {names} ({needed // 2**20} MiB, once)") as step:
            _run_ivy(missing, folder, work, step)
        for artifact in missing:
            _take_over(artifact, work, folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _run_ivy(missing: Sequence[Artifact], folder: Path, work: Path, step: Step) -> None:
    module = work / "ivy.xml"
    module.write_text(ivy_module(missing), encoding="utf-8")
    log = folder / "fetch.log"
    total = sum(artifact.size_bytes for artifact in missing)
    command = [
        *(str(java()), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData"),
        *("-Dsun.net.client.defaultConnectTimeout=15000", "-Dsun.net.client.defaultReadTimeout=60000"),
        # Nothing of the user's own Ivy takes part: what we fetch must not depend on what lies around.
        *(f"-Djava.io.tmpdir={work}", f"-Divy.default.ivy.user.dir={work / 'user'}"),
        *(*trust_options(folder), *proxy_options()),
        *("-jar", str(ivy_jar()), "-ivy", str(module), "-cache", str(work / "cache"), "-verbose"),
        *("-cachepath", str(work / "paths")),
    ]
    with log.open("wb") as output:
        ivy = subprocess.Popen(  # noqa: S603 - our own command line, no shell
            command,
            cwd=work,
            env=environment({}),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            _watch(ivy, work, total, step)
        finally:
            ivy.kill()
            ivy.wait()
    if ivy.returncode != 0 or not (work / "paths").is_file():
        raise _fetch_failed(missing, folder, _ivy_reason(log))


def _watch(ivy: subprocess.Popen[bytes], work: Path, total: int, step: Step) -> None:
    done = 0
    progressed_at = time.monotonic()
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            ivy.wait(_POLL_S)
            return
        now_done = sum(_size(path) for path in work.glob("cache/**/jars/*"))
        if now_done != done:
            done, progressed_at = now_done, time.monotonic()
            step.progress(min(done, total), total, "bytes")
        elif time.monotonic() - progressed_at > _STALL_TIMEOUT_S:
            return  # the caller kills it and reports


def _take_over(artifact: Artifact, work: Path, folder: Path) -> None:
    fetched = next(work.glob(f"cache/**/jars/{artifact.file_name}"), None)
    if fetched is None:
        raise _fetch_failed([artifact], folder, "Ivy ended without it")
    found = _sha256(fetched)
    if found != artifact.sha256:
        raise LocalStackError(
            f"{artifact.file_name} as fetched is not the jar lakegate was tested with: SHA-256 {found}, not "
            f"{artifact.sha256}.",
            hint="Something between here and the Maven repository replaces files; look at proxies and mirrors.",
            file=artifact.file_name,
        )
    path = folder / "jars" / artifact.file_name
    fetched.replace(path)
    _remember_good(path, artifact)


def _is_good(path: Path, artifact: Artifact) -> bool:
    if _is_known_good(path, artifact):
        return True
    if _size(path) != artifact.size_bytes or _sha256(path) != artifact.sha256:
        return False
    _remember_good(path, artifact)
    return True


def _is_known_good(path: Path, artifact: Artifact) -> bool:
    """Tell whether the jar is the very file whose hash was right, without reading it."""
    try:
        return bool(json.loads(_marker(path).read_bytes()) == _fingerprint(path, artifact))
    except (OSError, ValueError):
        return False


def _remember_good(path: Path, artifact: Artifact) -> None:
    draft = _marker(path).with_suffix(f".{os.getpid()}")
    draft.write_text(json.dumps(_fingerprint(path, artifact)), encoding="utf-8")
    draft.replace(_marker(path))


def _fingerprint(path: Path, artifact: Artifact) -> list[object]:
    status = path.stat()
    return [artifact.sha256, status.st_size, status.st_mtime_ns, status.st_ino]


def _marker(path: Path) -> Path:
    return path.with_name(f"{path.name}.verified")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _ivy_reason(log: Path) -> str:
    text = log.read_text(encoding="utf-8", errors="replace")
    found = next(filter(None, (pattern.search(text) for pattern in _IVY_REASONS)), None)
    return found.group(0).strip()[:_MAX_REASON] if found else "the repository does not answer"


def _fetch_failed(missing: Sequence[Artifact], folder: Path, reason: str) -> LocalStackError:
    names = ", ".join(artifact.file_name for artifact in missing)
    hint = "The first start needs the network once; check it and try again. Behind a proxy set HTTPS_PROXY."
    if "SSL" in reason or "PKIX" in reason:
        hint = (
            "Java does not trust the certificate it was shown. Point SSL_CERT_FILE at a bundle with your proxy's "
            "certificate, or JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStore=… at a Java trust store that has it."
        )
    return LocalStackError(
        f"Could not fetch {names} from the Maven repository: {reason}. Log: {folder / 'fetch.log'}",
        hint=f"{hint} On a machine without network, copy the jars into {folder / 'jars'} from one that has them.",
        files=[artifact.file_name for artifact in missing],
        log=str(folder / "fetch.log"),
    )
