from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import certifi
import pytest

from lakegate.errors import LocalStackError
from lakegate.local import artifacts
from lakegate.local.artifacts import prepare, proxy_options, trust_options
from lakegate.model.artifacts import Artifact
from lakegate.ports import Step

_CONTENT = b"a jar"
_SMALL = Artifact(
    group="g", name="small", version="1", size_bytes=len(_CONTENT), sha256=hashlib.sha256(_CONTENT).hexdigest()
)


class _Silent:
    @contextlib.contextmanager
    def step(self, text: str) -> Iterator[Step]:
        yield self

    def progress(self, done: int, total: int, unit: str) -> None: ...

    def note(self, text: str) -> None: ...


class _Repository:
    """Stands in for Ivy: puts ``content`` where Ivy would, and counts."""

    def __init__(self, content: bytes = _CONTENT) -> None:
        self.content = content
        self.fetches = 0

    def __call__(self, missing: Sequence[Artifact], folder: Path, work: Path, step: Step) -> None:
        self.fetches += 1
        for artifact in missing:
            path = work / "cache" / artifact.group / artifact.name / "jars" / artifact.file_name
            path.parent.mkdir(parents=True)
            path.write_bytes(self.content)


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch) -> _Repository:
    stand_in = _Repository()
    monkeypatch.setattr(artifacts, "_run_ivy", stand_in)
    return stand_in


def _prepare(cache: Path) -> Path:
    return prepare(_Silent(), artifacts=[_SMALL], cache=cache)[_SMALL]


def test_a_jar_is_fetched_once(tmp_path: Path, repository: _Repository) -> None:
    path = _prepare(tmp_path)
    assert path.read_bytes() == _CONTENT
    assert _prepare(tmp_path) == path
    assert repository.fetches == 1
    assert not list(tmp_path.glob("fetch-*"))


@pytest.mark.parametrize("damage", [b"", b"a ja", b"A jar", b"a jar and more"])
def test_a_damaged_jar_is_fetched_again(tmp_path: Path, repository: _Repository, damage: bytes) -> None:
    path = _prepare(tmp_path)
    path.write_bytes(damage)
    os.utime(path, ns=(1, 1))
    assert _prepare(tmp_path).read_bytes() == _CONTENT
    assert repository.fetches == 2


def test_a_read_only_cache_with_all_jars_will_do(
    tmp_path: Path, repository: _Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / _SMALL.file_name).write_bytes(_CONTENT)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(artifacts, "locked", refuse)
    monkeypatch.setattr(Path, "write_text", refuse)
    assert _prepare(tmp_path).read_bytes() == _CONTENT
    (tmp_path / "jars" / _SMALL.file_name).write_bytes(b"not it")
    with pytest.raises(LocalStackError, match="Read-only file system"):
        _prepare(tmp_path)


def test_an_unexpected_jar_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "_run_ivy", _Repository(b"not it"))
    with pytest.raises(LocalStackError, match="isn't the expected jar"):
        _prepare(tmp_path)
    assert not (tmp_path / "jars" / _SMALL.file_name).exists()


def test_a_full_disk_is_reported_before_the_fetch(
    tmp_path: Path, repository: _Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=2**20))
    with pytest.raises(LocalStackError, match=r"only 1\.0 MB left"):
        _prepare(tmp_path)
    assert repository.fetches == 0


def test_proxies_of_the_environment_reach_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_TOOL_OPTIONS", raising=False)
    assert proxy_options({}) == ()
    assert proxy_options({"http": "http://user:secret@p:8080", "no": "localhost,.corp"}) == (
        "-Dhttp.proxyHost=p",
        "-Dhttp.proxyPort=8080",
        "-Dhttp.nonProxyHosts=localhost|*.corp",
    )
    # Python takes a proxy without a scheme, too.
    assert proxy_options({"https": "p.corp:3128"}) == ("-Dhttps.proxyHost=p.corp", "-Dhttps.proxyPort=3128")
    assert proxy_options({"https": ""}) == ()
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dhttps.proxyHost=other")
    assert proxy_options({"http": "http://p:8080"}) == ()


def test_the_systems_trust_store_is_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "cacerts"
    store.touch()
    monkeypatch.delenv("JAVA_TOOL_OPTIONS", raising=False)
    monkeypatch.setattr(artifacts, "_SYSTEM_STORES", (tmp_path / "none", store))
    assert trust_options(tmp_path) == (f"-Djavax.net.ssl.trustStore={store}",)


def test_java_reads_a_trust_store_made_from_pythons_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = tmp_path / "bundle.pem"
    broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    bundle.write_text(broken + Path(certifi.where()).read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.delenv("JAVA_TOOL_OPTIONS", raising=False)
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    monkeypatch.setattr(artifacts, "_SYSTEM_STORES", ())
    options = dict(option.split("=", 1) for option in trust_options(tmp_path / "cache"))
    store = options["-Djavax.net.ssl.trustStore"]
    listed = subprocess.run(
        [
            artifacts.java().with_name("keytool"),
            "-list",
            "-keystore",
            store,
            "-storepass",
            options["-Djavax.net.ssl.trustStorePassword"],
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    context = ssl.create_default_context(cafile=certifi.where())
    assert listed.count("trustedCertEntry") == len(context.get_ca_certs())
    assert dict(option.split("=", 1) for option in trust_options(tmp_path / "cache")) == options


def test_pyspark_without_spark_is_a_clear_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    with pytest.raises(LocalStackError, match="only the client") as caught:
        artifacts.spark_jars()
    assert caught.value.hint is not None
    assert "pyspark[connect]" in caught.value.hint
