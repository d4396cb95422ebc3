"""The stores that the local Spark must reach, and what it gets for each."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakegate.components import Components
from lakegate.config import (
    AdlsSettings,
    CatalogSettings,
    GcsSettings,
    S3Settings,
    Settings,
    StorageSettings,
)
from lakegate.errors import ConfigurationError, InputError
from lakegate.local.stores import (
    ADLS_ARTIFACTS,
    GCS_ARTIFACTS,
    SparkStores,
    store_artifacts,
    store_properties,
    store_variables,
    stores_of,
)
from lakegate.model.artifacts import S3_ARTIFACTS
from lakegate.model.batch import Batch, SourceFile
from lakegate.progress import SilentNarrator

AZURE = "abfss://lake@acme.dfs.core.windows.net/x"
GOOGLE = SparkStores(gcs=GcsSettings(endpoint="http://127.0.0.1:1"))


def test_files_determine_the_stores() -> None:
    storage = StorageSettings(
        s3=S3Settings(endpoint="http://127.0.0.1:1", region="eu-west-1"), gcs=GcsSettings(endpoint="http://h:2")
    )
    assert not stores_of(["file:///lake/x", "/lake/y"], storage)
    assert stores_of(["gs://bucket/x", AZURE], storage) == SparkStores(gcs=storage.gcs, adls=AdlsSettings())
    found = stores_of(["s3a://one/x", "s3://two/y", "file:///z"], storage)
    # an address takes no bucket's name before it
    assert found == SparkStores(s3=storage.s3.model_copy(update={"path_style": True}))
    with pytest.raises(InputError, match="doesn't name a bucket"):
        stores_of(["s3://"], storage)


def test_stores_are_merged_and_the_newest_settings_win() -> None:
    here, there = SparkStores(s3=S3Settings(region="a")), SparkStores(s3=S3Settings(region="b"))
    both = here.merged(GOOGLE)
    assert (both.s3, both.gcs) == (here.s3, GOOGLE.gcs)
    assert both.covers(here)
    assert both.covers(GOOGLE)
    assert both.covers(SparkStores())
    assert not both.covers(there)
    assert both.merged(there) == SparkStores(s3=there.s3, gcs=GOOGLE.gcs)
    assert not here.covers(GOOGLE)


def test_each_store_has_its_jars_settings_and_credentials() -> None:
    everywhere = SparkStores(s3=S3Settings(), gcs=GcsSettings(), adls=AdlsSettings())
    assert store_artifacts(everywhere) == (*S3_ARTIFACTS, *GCS_ARTIFACTS, *ADLS_ARTIFACTS)
    assert store_artifacts(GOOGLE) == GCS_ARTIFACTS
    assert store_properties(GOOGLE)["spark.hadoop.fs.gs.storage.root.url"] == "http://127.0.0.1:1/"
    assert store_properties(SparkStores(adls=AdlsSettings())) == {}
    around = {"AWS_PROFILE": "a", "GOOGLE_APPLICATION_CREDENTIALS": "/g.json", "AZURE_CLIENT_SECRET": "s", "OTHER": "x"}
    assert store_variables(GOOGLE, around) == {"GOOGLE_APPLICATION_CREDENTIALS": "/g.json"}
    assert store_variables(everywhere, around).keys() == around.keys() - {"OTHER"}
    assert not [value for value in store_properties(everywhere).values() if value in around.values()]


def test_files_that_the_local_spark_cannot_read_are_reported(tmp_path: Path) -> None:
    settings = Settings(catalog=CatalogSettings(warehouse=f"{AZURE}/lake"))
    made = Components(tmp_path, settings, session=None, narrator=SilentNarrator())
    file = SourceFile(uri=AZURE, size_bytes=1, rows=1, version="v")
    batch = Batch(format="parquet", files=(file,), columns=())
    with pytest.raises(ConfigurationError, match="can't read source files from Azure") as caught:
        made.make_readable(batch, in_transaction=False)
    assert "engine.url" in str(caught.value.hint)
    assert made.warehouse == f"{AZURE}/lake"
