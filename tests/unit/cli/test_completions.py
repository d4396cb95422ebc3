"""Shell completion of names."""

from __future__ import annotations

from typing import Any

import click
import pytest

from lakegate.cli import options
from lakegate.cli.app import App
from lakegate.cli.main import cli
from lakegate.errors import InputError
from lakegate.local.state import ServiceStatus
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
        branches=[Ref(name="main", hash=HASH), Ref(name="wap/x", hash=HASH)],
        tags=[Ref(name="march", hash=HASH, kind="tag")],
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


def test_a_table_that_cannot_be_read_is_completed_too() -> None:
    class Damaged(FakeLake):
        def tables(self, *, on_unreadable: Any = None) -> Any:
            error = InputError("The metadata of nyc.zones is damaged.")
            if on_unreadable is None:
                raise error
            on_unreadable("nyc.zones", error)
            return [METADATA]

    assert complete(["ingest"], "nyc", Damaged(), FakeStack()) == ["nyc.trips", "nyc.zones"]


def test_runs_are_completed_by_what_can_be_done_with_them() -> None:
    lake: Any = FakeLake(runs=[PUBLISHED])
    context = click.Context(click.Command("revert"), obj=App(connect=lambda *_, **__: lake))
    argument = click.Argument(["run"])
    assert options.complete_published_runs(context, argument, "2026") == [RUN_ID]
    assert lake.asked("runs")["status"] == "published"
    tags: Any = FakeLake(tags=[Ref(name="march", hash=HASH, kind="tag")])
    stack: Any = FakeStack()
    context = click.Context(click.Command("tag"), obj=App(connect=lambda *_, **__: tags, local_stack=lambda *_: stack))
    assert options.complete_tags(context, argument, "m") == ["march"]


def test_completion_starts_nothing_and_swallows_errors() -> None:
    down = FakeStack("stopped")
    lake = FakeLake(tables=[METADATA], runs=RuntimeError("no journal"))
    assert complete(["ingest"], "", lake, down) == []
    assert complete(["runs"], "", lake, down) == []
    assert (down.ups, [name for name, _, _ in lake.calls]) == (0, ["runs"])


def test_completion_does_not_start_spark_when_only_nessie_runs() -> None:
    class WithoutSpark(FakeStack):
        def status(self) -> tuple[ServiceStatus, ...]:
            nessie, spark = super().status()
            return nessie, spark.model_copy(update={"state": "stopped"})

    lake = FakeLake(tables=[METADATA])
    assert (complete(["ingest"], "", lake, WithoutSpark()), lake.calls) == ([], [])


def test_an_unknown_command_before_the_cursor_is_no_error() -> None:
    assert "ingest" in complete(["ingst"], "", FakeLake(), FakeStack())


def test_a_slow_catalog_does_not_hold_the_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    released = threading.Event()
    monkeypatch.setattr(options, "_COMPLETION_TIMEOUT_S", 0.01)

    class Slow(FakeLake):
        def branches(self) -> list[Ref]:
            released.wait(10)
            return [Ref(name="main", hash=HASH)]

    assert complete(["publish"], "", Slow(), FakeStack()) == []
    released.set()
