"""The demo: starts and deploys everything, then uploads three files one after the other."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakegate.components import local_stack
from lakegate.errors import RetryableError
from lakegate.integrations.aws.demo.cloud import Cloud, Patience, Upload, deploy, is_deployed
from lakegate.integrations.aws.demo.home import DemoFile, DemoHome, make_files
from lakegate.integrations.aws.demo.slack import SlackStandIn, slack_stand_in
from lakegate.lake import connect
from lakegate.local.ministack import MiniStack, in_environment
from lakegate.local.stores import stores_of
from lakegate.model.tables import RowCount
from lakegate.ports import Narrator

if TYPE_CHECKING:
    from lakegate.lake import Lake

_WAIT_S = 600.0


@dataclass(frozen=True, slots=True)
class Tour:
    """The result of the demo.

    Attributes:
        home: The demo's project.
        endpoint: Where MiniStack serves.
        bucket: Where the files were uploaded to.
        log: The log of MiniStack and the function.
        alert: The alert about the rejected one.
        rows: Number of rows of the table on ``main``, and its upper bound.
    """

    home: Path
    endpoint: str
    bucket: str
    log: Path
    outcomes: tuple[Upload, ...]
    alert: Mapping[str, Any]
    rows: RowCount


def play(
    folder: Path,
    table: str,
    checks: Sequence[str],
    narrator: Narrator,
    *,
    rows: int,
    generate: Callable[..., tuple[Path, ...]],
) -> Tour:
    """Start what is needed, deploy the function, upload the files, and wait for their outcomes.

    Args:
        folder: Folder of the demo's project.
        table: Where the files go.
        generate: Writes synthetic files: :func:`lakegate.sources.synthetic.generate`.

    Raises:
        LocalStackError: A server can't be installed or started.
        ConfigurationError: The folder is someone's project, or a package is missing.
        RetryableError: A file didn't have its expected outcome.
    """
    home = DemoHome(folder)
    ministack = MiniStack(home.path, narrator)
    endpoint = _started(ministack, home, narrator)
    with in_environment(ministack.environment), slack_stand_in() as slack:
        home.write(endpoint, table, checks)
        with _opened(home, slack, narrator) as (lake, cloud):
            patience = Patience(lake, cloud, narrator, timeout_s=_WAIT_S)
            files = make_files(home.uploads, generate, rows=rows)
            outcomes = tuple(_send(file, table, cloud, patience) for file in files)
            alert = _alert(outcomes, slack, patience)
            found = lake.table(table)
            counted = (found.rows, found.rows_at_most)
            return Tour(home.path, endpoint, cloud.bucket, ministack.log, outcomes, alert, counted)


def _started(ministack: MiniStack, home: DemoHome, narrator: Narrator) -> str:
    home.require_ours()
    endpoint = ministack.start()
    with in_environment(ministack.environment):
        if not home.was_played_in or is_deployed(narrator):
            return endpoint
        narrator.note("MiniStack was killed and lost its deployments: the demo starts over, without tables.")
        local_stack(home.path, home.settings(os.environ), narrator).down()
    ministack.stop()
    home.clear()
    return ministack.start()


@contextmanager
def _opened(home: DemoHome, slack: SlackStandIn, narrator: Narrator) -> Iterator[tuple[Lake, Cloud]]:
    settings = home.settings(os.environ)
    stores = stores_of([settings.catalog.warehouse or ""], settings.storage)
    stack = local_stack(home.path, settings, narrator).up(stores)
    cloud = deploy(home, stack, slack.url, narrator)
    with connect(home.path, settings=settings, narrator=narrator) as lake:
        yield lake, cloud


def _send(file: DemoFile, table: str, cloud: Cloud, patience: Patience) -> Upload:
    key = f"landing/{table.replace('.', '/')}/{file.path.name}"
    since = datetime.now(UTC)
    return patience.await_outcome(file, table, key, cloud.upload(file.path, key), since)


def _alert(outcomes: Sequence[Upload], slack: SlackStandIn, patience: Patience) -> Mapping[str, Any]:
    run_id = next(
        outcome.run.run_id for outcome in outcomes if outcome.outcome == "rejected" and outcome.run is not None
    )
    alert = patience.wait("Waiting for the alert", lambda: slack.about(run_id))
    if alert is None:
        raise RetryableError(
            f"Run {run_id} was rejected, but no alert arrived.", hint=f"lakegate runs {run_id}", run_id=run_id
        )
    return alert
