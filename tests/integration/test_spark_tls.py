"""A real Spark Connect server behind TLS of an authority of our own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakegate.config import load_settings
from lakegate.errors import ConfigurationError
from lakegate.lake import Lake, connect
from lakegate.local.state import StackState
from support.e2e_support import standing, write_trips
from support.tls_proxy import Authority, Proxy, tls_proxy

pytestmark = pytest.mark.jvm


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ours")


@pytest.fixture
def proxy(stack: StackState, authority: Authority) -> Iterator[Proxy]:
    with tls_proxy(stack.spark.port, authority.server()) as running:
        yield running


def opened(home: Path, stack: StackState, proxy: Proxy, token: Path, **engine: str) -> Lake:
    variables = {
        "LAKEGATE_ENGINE_URL": f"sc://localhost:{proxy.port}",
        "LAKEGATE_ENGINE_TOKEN": f"file:{token}",
        "LAKEGATE_CATALOG_URI": stack.nessie_uri,
        "LAKEGATE_CATALOG_WAREHOUSE": stack.warehouse,
        **{f"LAKEGATE_ENGINE_{name.upper()}": value for name, value in engine.items()},
    }
    return connect(home, settings=load_settings(home, env=variables))


@pytest.fixture
def token(stack: StackState, tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{stack.spark.token}\n", encoding="utf-8")
    path.chmod(0o600)
    return path


def test_a_batch_goes_all_the_way_by_tls_once_spark_knows_the_token(
    stack: StackState, authority: Authority, proxy: Proxy, token: Path, namespace: str, tmp_path: Path
) -> None:
    right = token.read_text(encoding="utf-8")
    token.write_text("not-the-token", encoding="utf-8")
    source = write_trips(tmp_path / "a.parquet", 20)
    with opened(tmp_path, stack, proxy, token, tls="true", ca_file=str(authority.file)) as lake:
        with pytest.raises(ConfigurationError, match="rejected the token"):
            lake.ingest(f"{namespace}.t", source)
        token.write_text(right, encoding="utf-8")
        assert lake.ingest(f"{namespace}.t", source, checks=["unique(id)"]).status == "published"
        assert lake.query(f"SELECT count(*) AS n FROM {namespace}.t").to_arrow()["n"].to_pylist() == [20]
    assert b"".join(proxy.heard).startswith(b"PRI * HTTP/2.0")


def test_another_authority_stops_the_run_before_anything_is_written(
    stack: StackState, proxy: Proxy, token: Path, namespace: str, tmp_path: Path
) -> None:
    others = Authority(tmp_path, "others")
    source = write_trips(tmp_path / "a.parquet", 20)
    with opened(tmp_path, stack, proxy, token, tls="true", ca_file=str(others.file)) as lake:
        before = standing(lake)
        with pytest.raises(ConfigurationError, match="certificate that isn't trusted"):
            lake.ingest(f"{namespace}.t", source)
        assert standing(lake) == before
    assert proxy.heard == []
