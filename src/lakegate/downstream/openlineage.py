"""OpenLineage events of runs, built and sent with the official client: to a server, or appended to a file.

A run's last event reports its audit as assertions about the audited tables (``dataQualityAssertions``, an input dataset
facet), even if nothing was published.

Sources: https://openlineage.io/spec/2-0-2/OpenLineage.json, https://openlineage.io/docs/spec/naming and
https://openlineage.io/docs/spec/facets
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urljoin
from uuid import NAMESPACE_URL, uuid5

from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, RunEvent, RunState
from openlineage.client.event_v2 import Run as LineageRun
from openlineage.client.facet_v2 import (
    DatasetFacet,
    InputDatasetFacet,
    JobFacet,
    OutputDatasetFacet,
    RunFacet,
    data_quality_assertions_dataset,
    dataset_version_dataset,
    error_message_run,
    input_statistics_input_dataset,
    job_type_job,
    lifecycle_state_change_dataset,
    output_statistics_output_dataset,
    processing_engine_run,
    schema_dataset,
    symlinks_dataset,
)
from openlineage.client.transport.file import FileConfig, FileTransport
from openlineage.client.transport.http import HttpConfig, HttpTransport, create_token_provider
from openlineage.client.transport.transport import Transport
from requests import HTTPError, PreparedRequest, RequestException, Response, Session, TooManyRedirects

from lakegate import __version__
from lakegate.config import OpenlineageDownstream
from lakegate.credentials.secret import Secret
from lakegate.downstream import DownstreamContext
from lakegate.errors import DownstreamError, DownstreamUnavailableError
from lakegate.model.checks import CheckResult
from lakegate.model.downstream import DownstreamEvent
from lakegate.model.run import Run, StagedTable
from lakegate.model.schema import Schema
from lakegate.progress import redact, without_secrets

_BUSY = (408, 425, 429)
_SERVER_ERROR = 500
NAMESPACE = "lakegate"
"""Namespace of the jobs, unless the settings name another."""
_PRODUCER = f"urn:lakegate:{__version__}"
_MOST_FILES = 100
"""If a run has more source files, events name their folders instead."""
_ENDED = {"published": RunState.COMPLETE, "skipped": RunState.COMPLETE, "reverted": RunState.COMPLETE}


class _PostingSession(Session):
    """Follows only redirects that keep an event's POST. Others make it a GET, which any server may answer with 200."""

    def rebuild_method(self, prepared_request: PreparedRequest, response: Response) -> None:
        super().rebuild_method(prepared_request, response)
        if prepared_request.method != "POST":
            raise TooManyRedirects


class OpenlineageTarget:
    """Implements :class:`lakegate.ports.Downstream`. A run that is resent has the same run id and times."""

    def __init__(self, name: str, settings: OpenlineageDownstream, lake: DownstreamContext) -> None:
        self._name = name
        self._settings = settings
        self._lake = lake
        self._key = None if settings.api_key is None else Secret(settings.api_key, setting=f"downstream.{name}.api_key")

    def deliver(self, event: DownstreamEvent, run: Run | None) -> None:
        """Send a run's events: its start, and its outcome. Without a run, send nothing.

        Raises:
            DownstreamError: The server refuses the events, or the file can't be written.
            DownstreamUnavailableError: The server doesn't answer, or asks to retry.
        """
        if run is None:
            return
        context = EventContext(
            namespace=self._settings.namespace,
            catalog=self._lake.settings.catalog.place or self._lake.warehouse,
            schemas={one.table: one.table_schema for one in event.tables if one.table_schema is not None},
            locations={one.table: one.location for one in event.tables if one.location is not None},
        )
        with self._explained():
            transport = self._transport()
            for one in events(run, context):
                transport.emit(one)

    def test(self) -> str:
        """Check the settings only: nothing but an event could test the server."""
        if self._key is not None:
            self._key.value()
        return f"Events go to {self._place}; the first run shows whether it accepts them."

    @property
    def _place(self) -> str:
        settings = self._settings
        if settings.url is not None:
            return urljoin(settings.url, settings.endpoint)
        return str(self._lake.home / (settings.file or ""))

    def _transport(self) -> Transport:
        settings = self._settings
        if settings.url is None:
            return FileTransport(FileConfig(log_file_path=self._place, append=True))
        auth = {} if self._key is None else {"type": "api_key", "apiKey": self._key.value()}
        return HttpTransport(
            HttpConfig(
                url=settings.url,
                endpoint=settings.endpoint,
                timeout=settings.timeout_s,
                auth=create_token_provider(auth),
                session=_PostingSession(),
                retry={"total": 0},  # the outbox retries
            )
        )

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Convert the client's errors, without the server's answers, which may quote what it was sent."""
        try:
            yield
        except HTTPError as error:
            status = 0 if error.response is None else error.response.status_code
            message = f"{self._place} answered {status} to OpenLineage events."
            if status in _BUSY or status >= _SERVER_ERROR:
                raise DownstreamUnavailableError(message, downstream=self._name) from None
            raise DownstreamError(
                message, hint=f"Check downstream.{self._name}: url, endpoint and api_key.", downstream=self._name
            ) from None
        except TooManyRedirects:
            raise DownstreamError(
                f"{self._place} redirects OpenLineage events to another address.",
                hint=f"Set downstream.{self._name}.url to that address.",
                downstream=self._name,
            ) from None
        except RequestException as error:
            raise DownstreamUnavailableError(
                f"{self._place} can't be reached ({type(error).__name__}).", downstream=self._name
            ) from None
        except RuntimeError:
            raise DownstreamError(
                f"{self._place} can't be written.", hint=f"Set downstream.{self._name}.file.", downstream=self._name
            ) from None


def make(name: str, settings: OpenlineageDownstream, context: DownstreamContext) -> OpenlineageTarget:
    """Return the OpenLineage target that a section of the settings describes."""
    return OpenlineageTarget(name, settings, context)


@dataclass(frozen=True, slots=True)
class EventContext:
    """Facts for events that a run doesn't have.

    Attributes:
        catalog: URI of the catalog, used as the namespace of the tables' symlinks.
        locations: Folders by table; those of staged tables are known from the run.
    """

    namespace: str = NAMESPACE
    catalog: str | None = None
    schemas: Mapping[str, Schema] = field(default_factory=dict)
    locations: Mapping[str, str] = field(default_factory=dict)


def events(run: Run, context: EventContext | None = None) -> tuple[RunEvent, ...]:
    """Return the events of a run: its start and, once it has ended, its outcome.

    The events of a run are always the same, because their run id derives from the run's.
    """
    known = context or EventContext()
    job = _job(run, known)
    begun = RunEvent(
        eventTime=_time(run.started_at),
        producer=_PRODUCER,
        run=LineageRun(runId=lineage_run_id(run.run_id), facets={"processing_engine": _engine()}),
        job=job,
        eventType=RunState.START,
        inputs=[*_files(run)],
        outputs=[],
    )
    if run.finished_at is None:
        return (begun,)
    ended = RunEvent(
        eventTime=_time(run.finished_at),
        producer=_PRODUCER,
        run=LineageRun(runId=lineage_run_id(run.run_id), facets=_run_facets(run)),
        job=job,
        eventType=_ENDED.get(run.status, RunState.FAIL if run.status != "discarded" else RunState.ABORT),
        inputs=[*_files(run), *_audited(run, known)],
        outputs=[*_outputs(run, known)],
    )
    return begun, ended


def lineage_run_id(run_id: str) -> str:
    """Return the UUID for a run. OpenLineage accepts no other ids.

    Example:
        >>> lineage_run_id("20260131T070509-1a2b3c4d")
        '5fa419c9-0c5a-5502-8abd-8aea7feda8de'
    """
    return str(uuid5(NAMESPACE_URL, f"urn:lakegate:run:{run_id}"))


def _time(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _job(run: Run, context: EventContext) -> Job:
    what = run.name or ",".join(sorted(run.tables)) or "transaction"
    facets: dict[str, JobFacet] = {
        "jobType": job_type_job.JobTypeJobFacet(
            processingType="BATCH", integration="LAKEGATE", jobType=run.kind.upper(), producer=_PRODUCER
        )
    }
    return Job(namespace=context.namespace, name=f"{run.kind}.{what}", facets=facets)


def _engine() -> RunFacet:
    return processing_engine_run.ProcessingEngineRunFacet(
        version=__version__, name="lakegate", openlineageAdapterVersion=__version__, producer=_PRODUCER
    )


def _run_facets(run: Run) -> dict[str, RunFacet]:
    facets: dict[str, RunFacet] = {"processing_engine": _engine()}
    message = _message(run)
    if message is not None:
        facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(
            message=message, programmingLanguage="PYTHON", producer=_PRODUCER
        )
    return facets


def _message(run: Run) -> str | None:
    if run.error is not None:
        return without_secrets(" ".join(filter(None, (run.error.message, run.error.hint))))
    if run.status == "rejected":
        names = ", ".join(result.name for result in run.failures)
        return f"The audit failed: {names}. Nothing was published."
    return None


def _audited(run: Run, context: EventContext) -> Iterator[InputDataset]:
    """Yield the audited tables with their results, at the audited version."""
    staged = {str(one.table): one for one in run.staged}
    for report in run.reports:
        facets: dict[str, InputDatasetFacet] = {
            "inputStatistics": input_statistics_input_dataset.InputStatisticsInputDatasetFacet(
                rowCount=report.rows, producer=_PRODUCER
            )
        }
        if report.results:
            facets["dataQualityAssertions"] = data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet(
                assertions=[_assertion(result) for result in report.results if result.verdict != "skipped"],
                producer=_PRODUCER,
            )
        namespace, name = _dataset_name(report.table, staged.get(report.table), context)
        about = _facets(report.table, staged.get(report.table), context, version=None)
        yield InputDataset(namespace=namespace, name=name, facets=about, inputFacets=facets)


def _assertion(result: CheckResult) -> data_quality_assertions_dataset.Assertion:
    about: dict[str, Any] = {"owner": result.owner, "tags": list(result.tags), "quarantined": result.quarantined}
    return data_quality_assertions_dataset.Assertion(
        assertion=result.check.partition("(")[0],
        success=result.verdict == "pass",
        column=result.columns[0] if len(result.columns) == 1 else None,
        name=result.name,
        severity=result.severity,
        description=result.description,
        expected="0" if result.tolerance is None else f"at most {result.tolerance}",
        actual=str(result.failing_rows),
        content=result.check,
        contentType="expression",
        params={
            "columns": list(result.columns),
            "total_rows": result.total_rows,
            "evidence": result.evidence,
            **{name: value for name, value in about.items() if value},
        },
    )


def _outputs(run: Run, context: EventContext) -> Iterator[OutputDataset]:
    """Yield the published tables. Readers see no other writes."""
    publication = run.publication
    if publication is None:
        return
    staged = {str(one.table): one for one in run.staged}
    dropped = {one.table for one in run.undone if one.dropped}
    for table in publication.tables:
        one = staged.get(table)
        facets: dict[str, OutputDatasetFacet] = {}
        if one is not None:
            facets["outputStatistics"] = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
                rowCount=one.rows, fileCount=one.data_files, producer=_PRODUCER
            )
        namespace, name = _dataset_name(table, one, context)
        about = _facets(table, one, context, version=publication.commit)
        is_created = one is not None and one.before is None
        if is_created or table in dropped:
            change = lifecycle_state_change_dataset.LifecycleStateChange
            about["lifecycleStateChange"] = lifecycle_state_change_dataset.LifecycleStateChangeDatasetFacet(
                lifecycleStateChange=change.CREATE if is_created else change.DROP, producer=_PRODUCER
            )
        yield OutputDataset(namespace=namespace, name=name, facets=about, outputFacets=facets)


def _facets(
    table: str, staged: StagedTable | None, context: EventContext, *, version: str | None
) -> dict[str, DatasetFacet]:
    """Return a table's facets. Its version is the commit once published, before that a snapshot id."""
    facets: dict[str, DatasetFacet] = {}
    if version is None and staged is not None:
        version = str(staged.pointer.snapshot_id)
    if version is not None:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(
            datasetVersion=version, producer=_PRODUCER
        )
    schema = context.schemas.get(table)
    if schema is not None:
        fields = [
            schema_dataset.SchemaDatasetFacetFields(name=column.name, type=column.type, ordinal_position=position)
            for position, column in enumerate(schema.columns, 1)
        ]
        facets["schema"] = schema_dataset.SchemaDatasetFacet(fields=fields, producer=_PRODUCER)
    if context.catalog is not None:
        link = symlinks_dataset.Identifier(namespace=redact(context.catalog), name=table, type="TABLE")
        facets["symlinks"] = symlinks_dataset.SymlinksDatasetFacet(identifiers=[link], producer=_PRODUCER)
    return facets


def _dataset_name(table: str, staged: StagedTable | None, context: EventContext) -> tuple[str, str]:
    """Return a table's namespace and name: its folder if known, as other integrations name Iceberg tables."""
    location = context.locations.get(table)
    if location is None and staged is not None:
        location = staged.pointer.metadata_location.rpartition("/metadata/")[0]
    return (context.namespace, table) if not location else _split_uri(location)


def _files(run: Run) -> Iterator[InputDataset]:
    uris = [redact(file.uri) for file in run.request.batch.files] if run.request is not None else []
    if len(uris) > _MOST_FILES:
        uris = list(dict.fromkeys(posixpath.dirname(uri) for uri in uris))[:_MOST_FILES]
    for uri in uris:
        namespace, name = _split_uri(uri)
        yield InputDataset(namespace=namespace, name=name)


def _split_uri(uri: str) -> tuple[str, str]:
    """Return the namespace and name of a file or folder by OpenLineage's naming rules.

    Example:
        >>> _split_uri("s3://landing/trips/a.parquet"), _split_uri("file:///data/trips")
        (('s3://landing', 'trips/a.parquet'), ('file', '/data/trips'))
    """
    scheme, _, rest = uri.rpartition("://")
    if scheme in ("", "file"):
        return "file", rest or "/"
    authority, _, path = rest.partition("/")
    return f"{scheme}://{authority}", path or "/"
