"""Serve the lake to other engines (Iceberg REST)."""

from __future__ import annotations

import importlib.util
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lakegate.cli.app import App, command
from lakegate.cli.output import safe, say
from lakegate.cli.streams import as_json
from lakegate.errors import ConfigurationError
from lakegate.progress import one_line, without_secrets

if TYPE_CHECKING:
    from lakegate.gate.server import ListenAddress

_NEEDED = ("starlette", "uvicorn")
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@command(
    "serve",
    examples=(
        "lakegate serve",
        "lakegate serve --port 0 -o json",
        "lakegate serve --host 0.0.0.0 --token env:LAKE_READER_TOKEN",
    ),
)
@click.option("--host", metavar="HOST", help="Address to listen on; other machines need --token. Overrides serve.host.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    metavar="N",
    help="Port to listen on; 0 for a free one. Overrides serve.port.",
)
@click.option(
    "--token",
    metavar="REF",
    help="Bearer token that clients must send, as env:NAME or file:/path. Overrides serve.token.",
)
@click.option("--tls-certificate", type=_FILE, metavar="FILE", help="Certificate chain (PEM), for TLS.")
@click.option("--tls-key", type=_FILE, metavar="FILE", help="The certificate's private key (PEM).")
def serve(app: App, /, **given: Any) -> None:
    """Serve the lake to other engines, until you stop it.

    DuckDB, PyIceberg, Polars, Spark, Trino and others read from it as from any Iceberg REST catalog. They see main, or
    a tag or an earlier commit of it, and no other branch. They write with the token of a branch that was opened for
    them (lakegate gate open), to that branch.

    Readers choose what they see by the warehouse they connect to: main, pinned (everything from the commit that was
    newest when they connected), tag:NAME or commit:HASH.

    Ctrl-C or SIGTERM stops it, with exit code 0.
    """
    _require_installed()
    from lakegate.api.gate import door
    from lakegate.config import load_settings
    from lakegate.credentials.secret import Secret
    from lakegate.gate.server import ListenAddress, require_safe, run
    from lakegate.listening import listen

    components = app.components()
    flags = {f"serve.{name}": value for name, value in given.items()}
    settings = load_settings(app.folder(), flags={**app.flags(), **flags})
    wanted = settings.serve
    address = ListenAddress(wanted.host, wanted.port, wanted.tls_certificate, wanted.tls_key)
    require_safe(address, has_token=wanted.token is not None)
    token = None if wanted.token is None else Secret(wanted.token, setting="serve.token")
    if token is not None:
        token.value()  # fail now, not at each request, if it's missing
    listening = listen(wanted.host, wanted.port, command="lakegate serve")
    address = ListenAddress(address.host, listening.getsockname()[1], address.certificate, address.key)
    try:
        api = door(components, token=None if token is None else token.value)
        _announce(app, address, has_token=token is not None)
        _log_requests(app)
        run(api, listening, address)
    finally:
        listening.close()
        components.close()


def _require_installed() -> None:
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f"Serving needs {' and '.join(missing)}, which {'are' if len(missing) > 1 else 'is'}n't installed.",
            hint="pip install 'lakegate[serve]'",
            extra="serve",
        )


def _announce(app: App, address: ListenAddress, *, has_token: bool) -> None:
    """Print the address, and what to paste into an engine."""
    if app.json:
        click.echo(as_json({"url": address.url, "warehouse": "main", "token": has_token}))
        return
    say(f"Serving the published tables at [bold]{safe(address.url)}[/] (Ctrl-C to stop)", "")
    authorization = "TOKEN '…'" if has_token else "AUTHORIZATION_TYPE 'none'"
    properties = f'type="rest", uri="{address.url}"' + (', token="…"' if has_token else "")
    say(
        "[dim]DuckDB[/]",
        f"  ATTACH 'main' AS lake (TYPE iceberg, ENDPOINT '{safe(address.url)}', {authorization});",
        "[dim]PyIceberg[/]",
        f'  lake = load_catalog("lake", {safe(properties)})',
        "",
    )
    if not address.is_private and address.certificate is None:
        click.echo(
            "warning: without TLS, the token can be read in transit. Put a TLS proxy in front, or pass "
            "--tls-certificate and --tls-key.",
            err=True,
        )


def _log_requests(app: App) -> None:
    """Show one line for each request on standard error, unless that's a log of JSON lines anyway."""
    if app.logs is None and not app.quiet:
        logger = logging.getLogger("lakegate.gate")
        logger.setLevel(logging.INFO)
        logger.addHandler(_RequestLines())
        logger.propagate = app.debug


class _RequestLines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        facts: dict[str, Any] = getattr(record, "facts", {})
        took = f"  {1000 * facts['seconds']:.0f} ms  {facts['client'] or ''}" if "seconds" in facts else ""
        click.echo(one_line(without_secrets(f"{self.format(record)}{took}")), err=True)
