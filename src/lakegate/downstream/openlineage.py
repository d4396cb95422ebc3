"""OpenLineage events of runs, sent to a server or appended to a file through the official client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urljoin

from openlineage.client.transport.file import FileConfig, FileTransport
from openlineage.client.transport.http import HttpConfig, HttpTransport, create_token_provider
from openlineage.client.transport.transport import Transport
from requests import HTTPError, RequestException

from lakegate.config import OpenlineageDownstream
from lakegate.credentials.secret import Secret
from lakegate.downstream import DownstreamContext
from lakegate.errors import DownstreamError, DownstreamUnavailableError
from lakegate.model.downstream import DownstreamEvent
from lakegate.model.run import Run
from lakegate.telemetry.openlineage import EventContext, events

_BUSY = (408, 425, 429)
_SERVER_ERROR = 500


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
            catalog=self._lake.settings.catalog.uri or self._lake.warehouse,
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
        except RequestException as error:
            raise DownstreamUnavailableError(
                f"{self._place} can't be reached ({type(error).__name__}).", downstream=self._name
            ) from None
        except RuntimeError:
            raise DownstreamError(
                f"{self._place} can't be written.", hint=f"Set downstream.{self._name}.file.", downstream=self._name
            ) from None


def make(name: str, settings: OpenlineageDownstream, context: DownstreamContext) -> OpenlineageTarget:
    """Return the downstream system that a section of the settings describes."""
    return OpenlineageTarget(name, settings, context)
