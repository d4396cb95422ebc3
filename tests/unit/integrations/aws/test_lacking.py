"""What the settings need but the function's package lacks."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from lakegate.integrations.aws.package import is_needed, lacking_in_function


def test_without_the_connector_snowflake_events_are_queued_with_a_note(tmp_path: Path) -> None:
    settings = tmp_path / "lakegate.toml"
    settings.write_text('[downstream.sf]\ntype = "snowflake"\n[downstream.hook]\ntype = "webhook"\n')
    (note,) = lacking_in_function(settings)
    assert "queues events for 'sf'" in note
    assert note.endswith("lakegate downstream retry sf")
    settings.write_text('[downstream.hook]\ntype = "webhook"\n')
    assert lacking_in_function(settings) == lacking_in_function(None) == ()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('[openlineage]\nurl = "https://marquez.example.com"\n', "openlineage"),
        ('[downstream.lineage]\ntype = "openlineage"\nfile = "events.json"\n', "lineage"),
    ],
)
def test_without_the_client_openlineages_events_are_queued_with_a_note(tmp_path: Path, text: str, name: str) -> None:
    settings = tmp_path / "lakegate.toml"
    settings.write_text(text, encoding="utf-8")
    (note,) = lacking_in_function(settings)
    assert note.startswith(f"The function comes without OpenLineage's client: it queues events for '{name}'")
    assert "lakegate[openlineage]" in note


def test_the_function_can_read_what_arrow_reads() -> None:
    for module in ("csv", "json", "orc", "parquet"):
        source = str(importlib.import_module(f"pyarrow.{module}").__file__)
        compiled = str(importlib.import_module(f"pyarrow._{module}").__file__)
        for file in (source, compiled):
            name = f"pyarrow/{file.rpartition('/pyarrow/')[2]}"
            assert is_needed(name), name


def test_what_the_function_asks_of_aws_is_in_its_package() -> None:
    loaders = importlib.import_module("botocore.loaders").Loader()
    for service in ("glue", "s3", "secretsmanager", "sqs"):
        version = loaders.determine_latest_version(service, "service-2")
        assert is_needed(f"botocore/data/{service}/{version}/service-2.json.gz")
