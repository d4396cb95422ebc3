"""``/metrics``: what Prometheus reads, of the lake that the dashboard shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from lakegate.errors import LakegateError
from lakegate.model.secrets import is_loopback

if TYPE_CHECKING:
    from starlette.requests import Request

    from lakegate.dashboard.ui.session import Shared


def metrics_routes(shared: Shared) -> list[Route]:
    """Return the route, if whoever comes in may be known there: a scraper can't log in by OpenID Connect.

    Args:
        shared: What the pages work with.
    """
    access = shared.access

    async def metrics(request: Request) -> PlainTextResponse:
        # A page of another site could have its name point here, and read the tables' names.
        if access.login == "none" and not is_loopback(request.url.hostname or ""):
            return PlainTextResponse("Ask for /metrics at 127.0.0.1.\n", status_code=403)
        name = request.headers.get(access.settings.user_header or "")
        if access.login == "proxy" and not access.visitor({"user": name}).may_see:
            return PlainTextResponse("You may not see this.\n", status_code=403)
        try:
            from lakegate.telemetry.prometheus import CONTENT_TYPE, text
        except ModuleNotFoundError:
            return PlainTextResponse("Metrics need: pip install 'lakegate[metrics]'\n", status_code=501)
        try:
            samples = await run_in_threadpool(shared.lake.metrics)
        except LakegateError as error:
            return PlainTextResponse(f"{error.message}\n", status_code=503)
        return PlainTextResponse(text(samples), headers={"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store"})

    return [] if access.login == "oidc" else [Route("/metrics", metrics, methods=["GET"])]
