"""The target that the settings name: which one, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lakegate.catalogs.target.opening import open_target, target_properties
from lakegate.catalogs.target.sql_swap import SqlSwapTarget
from lakegate.components import Components
from lakegate.config import CatalogSettings, load_settings
from lakegate.errors import CatalogUnavailableError, ConfigurationError, LakegateError
from lakegate.iceberg.files import TableFiles
from lakegate.model.refs import Ref
from lakegate.progress import SilentNarrator
from support.cli_support import invoke


def opened(home: Path, **properties: str) -> Any:
    settings = CatalogSettings(type="iceberg", properties=properties)
    return open_target("lake", target_properties(settings, home), TableFiles())


def test_a_sql_catalog_in_the_projects_folder_is_swapped(tmp_path: Path) -> None:
    found = opened(tmp_path, uri="sqlite:///catalog.db", warehouse=f"file://{tmp_path}/lake")
    assert isinstance(found, SqlSwapTarget)
    assert (tmp_path / "catalog.db").is_file()
    assert found.identity() == f"sqlite:///{tmp_path}/catalog.db#lake"
    found.close()


def test_a_catalog_of_pyicebergs_own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", "https://lake.example.com")
    found = target_properties(CatalogSettings(type="iceberg", name="prod", properties={"type": "rest"}), tmp_path)
    assert found == {"type": "rest", "uri": "https://lake.example.com"}
    with pytest.raises(ConfigurationError, match="says where catalog 'other' is"):
        target_properties(CatalogSettings(type="iceberg", name="other"), tmp_path)


def test_secrets_are_references_and_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lakegate.toml").write_text(
        '[catalog]\ntype = "iceberg"\nproperties = { uri = "env:LAKE_URI", warehouse = "file:///lake" }\n'
    )
    monkeypatch.setenv("LAKE_URI", "postgresql://ada:s3cr3tword@127.0.0.1:1/lake")
    settings = load_settings(tmp_path).catalog
    properties = target_properties(settings, tmp_path)
    assert properties["uri"] == "postgresql+pg8000://ada:s3cr3tword@127.0.0.1:1/lake"
    assert properties["warehouse"] == "file:///lake"
    with pytest.raises(CatalogUnavailableError) as failed:
        open_target("lake", properties, TableFiles())
    assert "postgresql://127.0.0.1:1/lake doesn't answer" in failed.value.message
    shown = invoke(f"--home {tmp_path} admin config show -o json").output
    assert "env:LAKE_URI" in shown
    assert "s3cr3tword" not in f"{shown}{failed.value.message}{failed.value.hint}{failed.value.context}"
    for key, value in {"token": "s3cr3tword", "uri": "postgresql://ada:s3cr3tword@db/lake"}.items():
        (tmp_path / "lakegate.toml").write_text(f'[catalog]\ntype = "iceberg"\nproperties = {{ {key} = "{value}" }}\n')
        with pytest.raises(ConfigurationError, match=f"'{key}' has a secret") as refused:
            load_settings(tmp_path)
        assert "s3cr3tword" not in refused.value.message


def test_a_store_that_only_pyiceberg_knows_is_refused(tmp_path: Path) -> None:
    text = '[catalog]\ntype = "iceberg"\nproperties = { type = "rest", "s3.endpoint" = "http://store.example" }\n'
    (tmp_path / "lakegate.toml").write_text(text)
    with pytest.raises(ConfigurationError, match=r"'s3.endpoint', which only PyIceberg reads: set 'endpoint'"):
        load_settings(tmp_path, env={})
    (tmp_path / "lakegate.toml").write_text(f'{text}[s3]\nendpoint = "http://store.example"\n')
    assert load_settings(tmp_path, env={}).catalog.properties["s3.endpoint"] == "http://store.example"


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, "nothing says where the catalog is"),
        ({"type": "sql"}, "can't open catalog 'lake': URI missing"),
        ({"type": "oracle", "uri": "https://x"}, "can't open catalog 'lake': 'oracle' is not a valid CatalogType"),
        ({"type": "rest", "uri": "http://127.0.0.1:1"}, "doesn't answer"),
    ],
)
def test_what_is_wrong_with_the_properties_is_said(tmp_path: Path, properties: dict[str, str], expected: str) -> None:
    with pytest.raises(LakegateError, match=expected) as failed:
        opened(tmp_path, **properties)
    assert failed.value.hint


def test_nessies_address_is_none_of_a_target(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="'uri' is Nessie's address"):
        load_settings(tmp_path, flags={"catalog.type": "sql", "catalog.uri": "https://nessie.example.com/api/v2"})


def test_up_writes_down_that_a_new_project_does_without_nessie(tmp_path: Path) -> None:
    for _ in range(2):
        assert invoke(f"--home {tmp_path} up --catalog sql").exit_code == 0
    assert load_settings(tmp_path, env={}).catalog.type == "sql"
    (tmp_path / "lakegate.toml").write_text('[catalog]\nuri = "https://nessie.example.com/api/v2"\n')
    refused = invoke(f"--home {tmp_path} up --catalog sql")
    assert refused.exit_code != 0


def test_a_spark_elsewhere_needs_the_address_of_a_gate(tmp_path: Path) -> None:
    properties = {"uri": "sqlite:///catalog.db", "warehouse": "s3://lake/warehouse"}
    flags = {"catalog.type": "iceberg", "catalog.properties": properties, "engine.url": "sc://spark.example.com:15002"}
    for gate, expected in ((None, "can't reach the branches"), ("http://gate.example.com", "without TLS")):
        settings = load_settings(tmp_path, env={}, flags={**flags, "engine.gate": gate})
        parts = Components(tmp_path, settings, session=None, narrator=SilentNarrator())
        with pytest.raises(ConfigurationError, match=expected) as failed:
            parts.spark_options(None)
        assert failed.value.context["setting"] == "engine.gate"
        parts.close()
    settings = load_settings(tmp_path, env={}, flags={**flags, "engine.gate": "https://gate.example.com/"})
    parts = Components(tmp_path, settings, session=None, narrator=SilentNarrator())
    pinned = Ref(name="wap/day", hash="ab" * 32, kind="detached")
    options = parts.spark_options(pinned)
    assert (options["uri"], options["prefix"]) == ("https://gate.example.com/engine", f"wap%2Fday%23{'ab' * 32}")
    assert parts.warehouse == "s3://lake/warehouse"
    parts.close()
