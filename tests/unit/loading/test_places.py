"""Which files belong to watched paths, and which table they go to."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakegate.errors import IdentifierError, InputError
from lakegate.loading.routes import Routes, WatchedPaths
from lakegate.sources.discovery import list_files
from lakegate.sources.files import to_uri

TREE = (
    "1.csv",
    "2.parquet",
    "notes.txt",
    "_half.csv",
    ".hidden.csv",
    "day/3.csv",
    "day/deep/4.csv.gz",
    "day/_temporary/5.csv",
    "day=1/6.csv",
    "other day/7 [a].csv",
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in TREE:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    "path",
    [
        "",
        "1.csv",
        "notes.txt",
        "*.csv",
        "*",
        "**/*.csv",
        "day*",
        "day*/*.csv",
        "d?y/*.csv",
        "other day",
        "[12].*",
        "gone",
    ],
)
def test_places_hold_exactly_the_files_that_a_listing_finds(tree: Path, path: str) -> None:
    watched = str(tree / path) if path else str(tree)
    places = WatchedPaths([watched])
    uris = {to_uri(tree / name): name.endswith((".csv", ".csv.gz", ".parquet")) for name in TREE}
    held = {uri for uri, is_recognised in uris.items() if places.contain(uri, is_recognised=is_recognised)}
    assert held == {file.uri for file in list_files([watched])}


def test_a_place_may_be_relative_or_a_uri(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree)
    for path in ("day", "./day/", tree.as_uri() + "/day", "day/*.csv"):
        assert WatchedPaths([path]).contain(to_uri(tree / "day/3.csv"))
        assert not WatchedPaths([path]).contain(to_uri(tree / "1.csv"))


def test_a_pattern_holds_names_with_line_breaks() -> None:
    file = "s3://landing/nyc/trips/day\n1/a\nb.csv"
    assert WatchedPaths(["s3://landing/**"]).contain(file)
    assert Routes(["s3://landing/{namespace}/{table}/**"]).table(file) == "nyc.trips"


def test_a_store_prefix_holds_all_keys_that_start_with_it() -> None:
    places = WatchedPaths(["s3a://bucket/landing/"])
    assert places.contain("s3://bucket/landing/2024/1.csv")
    assert not places.contain("s3://bucket/other/1.csv")
    assert (places.missing(), places.folders(), places.are_local) == ((), (), False)


def test_missing_paths_and_existing_folders(tree: Path) -> None:
    paths = [str(tree / name) for name in ("day", "none", "none/*.csv", "*.none", "1.csv", "day/**/*.csv")]
    places = WatchedPaths(paths)
    assert places.missing() == (paths[1], paths[2])
    assert set(places.folders()) == {str(tree / "day"), str(tree)}


@pytest.mark.parametrize(
    ("pattern", "uri", "table"),
    [
        ("/l/{namespace}/{table}/*.parquet", "file:///l/nyc/trips/a.parquet", "nyc.trips"),
        ("/l/{namespace}/{table}/*.parquet", "file:///l/nyc/trips/deep/a.parquet", None),
        ("/l/{table}-*.csv => nyc.{table}", "file:///l/zones-2024-01.csv", "nyc.zones"),
        ("/l/a.b/* => nyc.all", "file:///l/aXb/x.csv", None),
        ("/l/{org}/{table}/**/*.csv => {org}.raw.{table}", "file:///l/nyc/trips/1/2/a.csv", "nyc.raw.trips"),
        ("/l/{org}/{table}/**/*.csv => {org}.raw.{table}", "file:///l/nyc/trips/a.csv", "nyc.raw.trips"),
        ("s3://b/{namespace:nyc|sales}/{table}/**", "s3://b/sales/trips/a.csv", "sales.trips"),
        ("s3://b/{namespace:nyc|sales}/{table}/**", "s3://b/nycx/trips/a.csv", None),
        ("s3://b/{namespace:n.c}/{table}/**", "s3://b/nyc/trips/a.csv", None),
    ],
)
def test_routes(pattern: str, uri: str, table: str | None) -> None:
    assert Routes([pattern]).table(uri) == table


def test_the_first_matching_route_wins() -> None:
    routes = Routes(["/l/special/* => nyc.special", "/l/{table}/* => nyc.{table}"])
    assert [routes.table(f"file:///l/{name}/a.csv") for name in ("special", "trips")] == ["nyc.special", "nyc.trips"]


def test_a_relative_route_starts_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    routes = Routes(["landing/{namespace}/{table}/*.csv"])
    assert routes.table(to_uri(tmp_path / "landing/nyc/trips/1.csv")) == "nyc.trips"


@pytest.mark.parametrize("name", ["b@d", "a b", "1st", "x`; DROP"])
def test_names_in_paths_are_validated(name: str) -> None:
    with pytest.raises(IdentifierError, match="which isn't a valid name"):
        Routes(["/l/{namespace}/{table}/*"]).table(to_uri(f"/l/nyc/{name}/a.csv"))


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "/l/*.csv",
        "/l/{table}/*",
        "/l/{}/{table}",
        "/l/{table}/{table} => a.{table}",
        "/l/* => trips",
        "/l/{namespace:}/{table}",
        "/l/{namespace:a||b}/{table}",
    ],
)
def test_routes_without_a_table_are_refused(pattern: str) -> None:
    with pytest.raises(InputError, match="route"):
        Routes([pattern])
