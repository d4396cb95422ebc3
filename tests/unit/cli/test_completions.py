"""Shell completion of names."""

from __future__ import annotations

from typing import Any

import pytest

from lakegate.cli.app import App
from lakegate.cli.main import cli
from lakegate.model.refs import Ref
from support.cli_support import HASH, METADATA, PUBLISHED, RUN_ID, FakeLake, FakeStack

pytestmark = pytest.mark.usefixtures("in_a_project")


def complete(words: list[str], incomplete: str, lake: FakeLake, stack: FakeStack) -> list[str]:
    from click.shell_completion import ShellComplete

    fake: Any = lake
    handle: Any = stack
    app = App(connect=lambda *_, **__: fake, local_stack=lambda *_: handle)
    found = ShellComplete(cli, {"obj": app}, "lakegate", "_LAKEGATE_COMPLETE").get_completions(words, incomplete)
    return [item.value for item in found]


def test_names_are_completed_when_the_catalog_is_up() -> None:
    lake = FakeLake(
        tables=[METADATA],
        branches_list=[Ref(name="main", hash=HASH), Ref(name="wap/x", hash=HASH)],
        tags_list=[Ref(name="march", hash=HASH, kind="tag")],
        runs=[PUBLISHED],
    )
    up = FakeStack()
    assert complete(["ingest"], "nyc", lake, up) == ["nyc.trips"]
    assert complete(["publish"], "", lake, up) == ["wap/x"]
    assert complete(["query", "x", "--ref"], "ma", lake, up) == ["main", "march"]
    assert complete(["runs"], "2026", lake, up) == [RUN_ID]
    assert complete([], "ing", lake, up) == ["ingest"]
    assert complete(["ingest", "--on-changed"], "re", lake, up) == ["refuse", "replace"]
    assert complete(["runs", "--kind"], "re", lake, up) == ["revert", "restore"]


def test_completion_starts_nothing_and_swallows_errors() -> None:
    down = FakeStack("stopped")
    lake = FakeLake(tables=[METADATA], runs=RuntimeError("no journal"))
    assert complete(["ingest"], "", lake, down) == []
    assert complete(["runs"], "", lake, down) == []
    assert (down.ups, [name for name, _, _ in lake.calls]) == (0, ["runs"])
