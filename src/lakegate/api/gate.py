"""``lake.gate``: branches that other engines write to, audited and published when their writer is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from lakegate.api.transactions import configured_checks
from lakegate.checks.parse import parsed_checks
from lakegate.components import Components
from lakegate.credentials.openings import Claim, token_of
from lakegate.errors import InputError, NotFoundError, NothingWrittenError, missing_package
from lakegate.model.checks import Check
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.locations import canonical
from lakegate.model.refs import MAIN
from lakegate.model.request import require_list
from lakegate.model.run import Run, new_run_id
from lakegate.model.words import parse_duration, suggest_keywords
from lakegate.run_text import rejection
from lakegate.wap import opening
from lakegate.wap.session import RunSession
from lakegate.wap.stream import publish_slice

if TYPE_CHECKING:
    from starlette.types import ASGIApp

CheckTexts = Mapping[str, Sequence[str | Check]]
DAY = "24h"
_LONGEST = timedelta(days=3_653)
_MOST_SHOWN = 1_000


@dataclass(frozen=True, slots=True)
class OpenBranch:
    """A branch that is open for a writer.

    Attributes:
        run_id: Id of its run.
        branch: Its name.
        token: What the writer must send as its bearer token. It's stored nowhere, and can't be shown again.
    """

    run_id: str
    branch: str
    token: str = field(repr=False)


class OpenGate:
    """A gate of this process, and the branch that it takes writes for.

    Attributes:
        uri: Address of the Iceberg REST catalog, on this machine.
        token: The writer's bearer token.
        branch: The branch that it writes to.
    """

    def __init__(self, session: RunSession, uri: str, token: str) -> None:
        self._session = session
        self.uri = uri
        self.token = token
        self.branch = session.run.branch

    @property
    def run(self) -> Run:
        """The run so far; after the ``with`` block, as it ended."""
        return self._session.run

    def remember(self, detail: str | None) -> None:
        """Keep a sentence on what was written, for the history."""
        self._session.run = self._session.run.model_copy(update={"detail": detail})


@suggest_keywords
class Gate:
    """Lets other engines write to a branch through an Iceberg REST catalog: ``lake.gate``."""

    def __init__(self, components: Components) -> None:
        self._components = components

    @contextmanager
    def __call__(
        self,
        name: str | None = None,
        *,
        checks: CheckTexts | None = None,
        branch: str | None = None,
        open_for: str | timedelta = DAY,
    ) -> Iterator[OpenGate]:
        """Serve a gate while the block runs; then audit all that was written through it, and publish it, or nothing.

        An exception in the block publishes nothing. The branch stays then, as it does when an audit fails.

        Args:
            name: Name of what is written, for the history.
            checks: Checks by table, in addition to those of the tables' contracts and settings.
            branch: Name of the branch. Default: one made from the name and the run id.
            open_for: How long writes are taken at most: a duration such as ``2h``.

        Raises:
            AuditFailedError: A check failed when the block ended. Nothing was published.
            ConflictError: A table that was changed or read changed on ``main``. Nothing was published.
            NothingWrittenError: Nothing was written to the branch.

        Example:
            >>> with lake.gate("totals", checks={"nyc.totals": ["row_count(min=1)"]}) as gate:
            ...     catalog = load_catalog("gate", type="rest", uri=gate.uri, token=gate.token)
            ...     _ = catalog.create_table("nyc.totals", schema=totals.schema).append(totals)
            >>> gate.run.status
            'published'
        """
        try:
            from lakegate.gate.server import serving
        except ImportError as error:
            raise missing_package("The gate needs", error.name, "serve") from error

        order = self._order(name, checks, branch, open_for)
        with (
            serving(door(self._components)) as uri,
            opening.opened(self._components.context, order, self._configured) as session,
        ):
            gate = OpenGate(session, uri, self._token(session.run))
            yield gate
        require_published(gate.run)

    def open(
        self,
        name: str | None = None,
        *,
        checks: CheckTexts | None = None,
        branch: str | None = None,
        open_for: str | timedelta = DAY,
    ) -> OpenBranch:
        """Open a branch for a writer that uses the gate of ``lakegate serve``. It's published once it's sealed.

        Args:
            name: Name of what is written, for the history.
            checks: Checks by table, in addition to those of the tables' contracts and settings.
            branch: Name of the branch. Default: one made from the name and the run id.
            open_for: When the opening expires unless it's sealed: a duration such as ``2h``. The branch stays then, and
                is never published.
        """
        order = self._order(name, checks, branch, open_for)
        run = opening.open_branch(self._components.context, order)
        return OpenBranch(run.run_id, run.branch, self._token(run))

    def seal(self, opened: str) -> Run:
        """Take no more writes to an open branch, audit each table that changed, and publish all of them, or nothing.

        If this was interrupted, call it again. A run that has ended is returned as it is.

        Args:
            opened: The branch, or the id of its run.

        Returns:
            The run: ``published``, ``rejected``, or ``skipped`` if nothing was written.

        Raises:
            ConflictError: A table that was changed or read changed on ``main``. The branch stays.
        """
        return opening.seal(self._components.context, self.find(opened).run_id, self._configured)

    def publish_slice(self, opened: str) -> Run | None:
        """Audit what was appended to an open branch since the last time, and publish it, while its writer goes on.

        From the first time on, the branch is a stream: it can't be sealed any more. If a check fails, nothing later is
        published until the run's branch is published with a reason, or discarded, which leaves its rows out.

        Args:
            opened: The branch, or the id of its run.

        Returns:
            The run that published it, or was ``rejected``; ``None`` if nothing was written.

        Raises:
            AuditFailedError: What was written before failed a check, and nobody has decided yet.
            InputError: Something else was done than rows appended and tables created; or the opening has ended, and all
                is published.
            RetryableError: Another process is publishing it, or the catalog is unavailable.
        """
        components = self._components
        return publish_slice(
            components.context,
            self.find(opened).run_id,
            self._configured,
            prefix=components.settings.ingest.branch_prefix,
        )

    def renew(self, opened: str, *, open_for: str | timedelta = DAY) -> Run:
        """Let an opening expire this long from now. Its token stays the same.

        Args:
            opened: The branch, or the id of its run.
            open_for: A duration such as ``2h``.
        """
        return opening.renew(self._components.context, self.find(opened).run_id, open_s=_seconds(open_for))

    @contextmanager
    def environment(self, gate: OpenGate) -> Iterator[dict[str, str]]:
        """Return the environment for a command whose engines write through a gate, while the body runs.

        PyIceberg finds the gate as the catalogs ``default`` and ``gate``, and Spark as its default catalog ``gate``.
        Others find ``LAKEGATE_GATE_URI``, ``LAKEGATE_GATE_TOKEN`` and ``LAKEGATE_GATE_BRANCH``.

        Args:
            gate: What :meth:`__call__` yielded.
        """
        from lakegate.gate.environment import command_environment
        from lakegate.local.artifacts import java, prepare
        from lakegate.local.stores import store_artifacts, stores_of
        from lakegate.model.artifacts import ICEBERG

        components = self._components
        stores = stores_of([components.warehouse], components.settings.storage)
        jars = prepare(components.narrator, artifacts=(ICEBERG, *store_artifacts(stores)))
        with command_environment(gate.uri, gate.token, gate.branch, jars=list(jars.values()), java=java()) as variables:
            yield variables

    def openings(self) -> Sequence[Run]:
        """Return the branches that are open now, oldest first."""
        runs = self._components.journal.runs(status="created", kind="gate", limit=_MOST_SHOWN)
        return [run for run in reversed(runs) if run.finished_at is None and run.opening is not None]

    def find(self, opened: str) -> Run:
        """Return the run of a branch that is or was open.

        Args:
            opened: The branch, or the id of its run.
        """
        run = self._components.journal.find_by_branch(opened) or self._components.journal.get(opened)
        if run is None or run.opening is None:
            raise NotFoundError(f"'{opened}' was never opened through the gate.", hint="lakegate gate status")
        return run

    def _token(self, run: Run) -> str:
        return token_of(Claim(run.run_id, run.branch), self._components.journal.gate_key())

    def _order(
        self, name: str | None, checks: CheckTexts | None, branch: str | None, open_for: str | timedelta
    ) -> opening.Order:
        open_s = _seconds(open_for)
        self._note_own_keys()
        run_id = new_run_id()
        prefix = self._components.settings.ingest.branch_prefix
        asked = {TableIdentifier.parse(table): _parsed(table, texts) for table, texts in (checks or {}).items()}
        return opening.Order(
            run_id=run_id,
            name=name,
            branch=branch or f"{prefix}/{name or 'gate'}_{run_id}",
            target=MAIN,
            checks=asked,
            open_s=open_s,
        )

    def _note_own_keys(self) -> None:
        """Say that the boundary has a hole: not all writers can do without keys."""
        warehouse = self._components.warehouse
        if canonical(warehouse).startswith("s3:") and self._components.settings.storage.s3.writer_role is None:
            self._components.narrator.note(
                "DuckDB and Trino can't have their requests signed, and with keys of their own, they can change "
                f"whatever those allow below {warehouse}: set s3.writer_role, or narrow the keys "
                "(docs/how-to/keep-tables-on-s3.md)."
            )

    @property
    def _configured(self) -> partial[tuple[Check, ...]]:
        return partial(configured_checks, self._components)


def door(components: Components, *, token: Callable[[], str] | None = None) -> ASGIApp:
    """Return the gate as an ASGI app.

    Args:
        token: Returns the bearer token of readers; ``None`` for none, which allows only requests to this machine.
    """
    from lakegate.gate.app import Gate as GateSettings
    from lakegate.gate.app import create_app
    from lakegate.gate.lending import lender_for
    from lakegate.gate.signing import signer_for
    from lakegate.iceberg.files import TableFiles

    catalog = components.settings.catalog
    again = partial(components.find_catalog, timeout_s=catalog.timeout_s) if catalog.needs_nessie else None
    storage = components.settings.storage
    files = TableFiles(storage)
    signer = signer_for(components.warehouse, storage)
    gate = GateSettings(
        opening.JournalOpenings(components.journal),
        components.journal.gate_key(),
        components.warehouse,
        signer,
        lender_for(components.warehouse, storage, signer),
    )
    engine = components.engine_access if catalog.is_target else None
    return create_app(components.catalog, files, token=token, find_again=again, gate=gate, engine=engine)


def require_published(run: Run) -> None:
    """Raise unless what was written through the gate is published."""
    if run.status == "skipped":
        raise NothingWrittenError(
            run.detail or f"No table was changed on {run.branch}.",
            hint="The gate's address and token are in LAKEGATE_GATE_URI and LAKEGATE_GATE_TOKEN.",
            run_id=run.run_id,
        )
    if run.status == "rejected":
        raise rejection(run)


def _parsed(table: str, texts: Sequence[str | Check]) -> Sequence[Check]:
    require_list(f"checks of {table}", texts)
    return parsed_checks(texts)


def _seconds(open_for: str | timedelta) -> float:
    found = parse_duration(open_for) if isinstance(open_for, str) else open_for
    if not timedelta() < found <= _LONGEST:
        raise InputError("A branch is open for a second at least, and 10 years at most.", hint="--for 2h, for example.")
    return found.total_seconds()
