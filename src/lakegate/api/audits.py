"""Audit and publish branches, and audit what is published."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial

from lakegate.api.refs import resolve_ref
from lakegate.api.transactions import configured_checks
from lakegate.checks.parse import parsed_checks
from lakegate.components import Components
from lakegate.errors import InputError
from lakegate.model.checks import AuditReport, Check
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import MAIN
from lakegate.model.request import require_list
from lakegate.model.run import Run
from lakegate.wap import review
from lakegate.wap.audit import audit_state


def audit(
    components: Components,
    table: str,
    branch: str | None,
    checks: Sequence[str | Check] | None,
    *,
    ref: str | None,
    at: str | datetime | None,
    since: str | datetime | None,
    explain: bool,
) -> AuditReport:
    """Audit what a branch did to a table, or its rows on a ref; see :meth:`lakegate.Lake.audit`."""
    identifier, configured = TableIdentifier.parse(table), partial(configured_checks, components)
    if branch is not None and ref is not None:
        raise InputError(f"branch='{branch}' and ref='{ref}' can't be combined.", hint="Pass one of them.")
    require_list("checks", checks)
    tried = None if checks is None else parsed_checks(checks)
    if branch not in (None, MAIN) and at is None and since is None:
        return review.audit_branch(
            components.context, identifier, branch, checks=tried, configured=configured, explain=explain
        )
    if (branch, ref, at, since) == (None, None, None, None):
        raise InputError(
            "Can't tell which rows to audit.",
            hint=f"Pass branch='NAME' for what a branch adds, or branch='{MAIN}' for what is published.",
        )
    name = ref or branch or MAIN
    start = None if since is None else resolve_ref(components, name, since)
    resolved = resolve_ref(components, name, at, reads=lambda: [identifier])
    wanted = configured(identifier) if tried is None else tried
    return audit_state(components.context, identifier, resolved, wanted, since=start, explain=explain)


def publish_branch(components: Components, branch: str, *, accept: str | None, actor: str | None) -> Run:
    """Publish a branch, whatever its audit said if there's a reason; see :meth:`lakegate.Lake.publish`."""
    return review.publish_branch(
        components.context,
        branch,
        configured=partial(configured_checks, components),
        acceptance=None if accept is None else review.accepted(accept, actor),
        action=review.acted("publish", actor),
    )
