"""``lake.downstream``: systems that are notified of each publish."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lakegate.components import Components
from lakegate.errors import InputError, NotFoundError
from lakegate.ledger.sync import sync
from lakegate.model.downstream import Delivery, DeliveryState, DownstreamCheck, DownstreamStatus
from lakegate.model.refs import MAIN
from lakegate.model.words import did_you_mean, suggest_keywords
from lakegate.points import unknown_table
from lakegate.wap.downstream import check, send

_RETRY_S = 600.0
_HIGHEST_NUMBER = 2**63 - 1
"""Highest number that databases can store."""


@suggest_keywords
class Downstream:
    """Systems in the settings that are notified of each publish: ``lake.downstream``.

    A delivery that failed isn't an exception: its outcome says why.

    Raises:
        NotFoundError: The settings name no such system, or none at all.
        RetryableError: The journal can't be reached.
    """

    def __init__(self, components: Components) -> None:
        self._components = components

    def status(self) -> Sequence[DownstreamStatus]:
        """Return what each system was sent and what is queued for it. Only reads the journal.

        Covers the systems in the settings, and others that the journal still queues for.
        """
        types = {name: given.type for name, given in self._components.settings.downstream.items()}
        known = {status.name: status for status in self._components.journal.outbox.status()}
        missing = (DownstreamStatus(name=name) for name in types if name not in known)
        return tuple(
            status.model_copy(update={"type": types.get(status.name)}) for status in (*known.values(), *missing)
        )

    def deliveries(
        self,
        *,
        downstream: str | None = None,
        run: str | None = None,
        states: Sequence[DeliveryState] = (),
        limit: int = 50,
    ) -> Sequence[Delivery]:
        """Return the events that systems were sent, or have yet to be sent, newest first.

        Args:
            downstream: Only this system.
            run: Only what this run did; a full id.
            states: Only deliveries in these states.
            limit: Maximum number of deliveries.
        """
        return self._components.journal.outbox.list(name=downstream, run_id=run, states=states, limit=limit)

    def send_due(self, name: str | None = None) -> Sequence[Delivery]:
        """Send one system, or all, what is due, and return what was tried. Every run that ends does this, too."""
        if not self._components.settings.downstream:
            return ()
        return send(self._components.context, target=MAIN, name=name)

    def send(self, name: str, tables: Sequence[str] = ()) -> Sequence[Delivery]:
        """Send a system the current state of tables on ``main``, for example because it's new in the settings.

        Args:
            name: Name of a system.
            tables: The tables. Default: all on ``main``.

        Returns:
            The deliveries that were tried, with their outcome.

        Raises:
            NotFoundError: A table doesn't exist.
        """
        self._require(name)
        context = self._components.context
        head = sync(context, MAIN)
        known = {str(pointer.table) for pointer in context.catalog.list_tables(head)}
        missing = next((table for table in tables if table not in known), None)
        if missing is not None:
            raise unknown_table(context.catalog, missing, head)
        outbox = self._components.journal.outbox
        outbox.again(name)
        outbox.send_current(name, tables or sorted(known), ref=MAIN, commit=head.hash)
        return send(context, name=name, within_s=_RETRY_S)

    def retry(self, name: str | None = None) -> Sequence[Delivery]:
        """Send one system, or all, everything that is queued, even what was given up. Return what was tried."""
        self._require(name)
        self._components.journal.outbox.again(name)
        return send(self._components.context, target=MAIN, name=name, within_s=_RETRY_S)

    def skip(self, name: str, *, delivery: int | None = None, reason: str = "Skipped.") -> Sequence[Delivery]:
        """Skip the oldest waiting delivery for good, so that those behind it can be sent.

        Args:
            name: Name of a system.
            delivery: Number of another waiting delivery. Default: the oldest.
            reason: Why, in one sentence. Stored with the delivery.

        Returns:
            What was skipped.

        Raises:
            NotFoundError: There's no such waiting delivery.
        """
        outbox = self._components.journal.outbox
        after = 0 if delivery is None else min(max(delivery, 1), _HIGHEST_NUMBER) - 1
        oldest = outbox.waiting(name, after=after, limit=1)
        skipped = [waiting for waiting in oldest if delivery in (None, waiting.delivery_id)]
        if not skipped:
            what = "Nothing" if delivery is None else f"No delivery {delivery}"
            raise NotFoundError(
                f"{what} is queued for downstream '{name}'.", hint=f"lakegate admin downstream status {name}"
            )
        outbox.ended(skipped, "skipped", reason)
        return tuple(waiting.model_copy(update={"state": "skipped", "reason": reason}) for waiting in skipped)

    def test(self, name: str | None = None) -> Sequence[DownstreamCheck]:
        """Check that one system, or all, can be reached with their settings, changing nothing in them."""
        self._require(name)
        return tuple(
            check(system, self._components.settings.downstream[system.subscription.name].type)
            for system in self._components.downstreams
            if name in (None, system.subscription.name)
        )

    def policy(self, name: str) -> Mapping[str, Any]:
        """Return the IAM policy that lakegate needs to notify a system. Only the AWS Glue Data Catalog needs one.

        Raises:
            InputError: Systems of its type need no permissions on AWS.
        """
        from lakegate.downstream import policy_of

        self._require(name)
        return policy_of(name, self._components.settings.downstream[name])

    def forget(self, name: str) -> int:
        """Stop queuing for a system that is no longer in the settings. Return how many deliveries that skipped.

        Raises:
            InputError: It's still in the settings.
            NotFoundError: There's no such system.
        """
        if name in self._components.settings.downstream:
            raise InputError(
                f"Downstream '{name}' is in the settings, so the next run would queue for it again.",
                hint=f"Remove the section [downstream.{name}] first.",
            )
        return self._components.journal.outbox.forget(name)

    def _require(self, name: str | None) -> None:
        known = self._components.settings.downstream
        if not known:
            raise NotFoundError(
                "No downstream system is configured.",
                hint="Add a section [downstream.NAME] to lakegate.toml, with its type.",
            )
        if name is not None and name not in known:
            guess = did_you_mean(name, known)
            raise NotFoundError(
                f"Downstream '{name}' doesn't exist in the settings. {guess}".rstrip(),
                hint="lakegate admin downstream status",
                downstream=name,
            )
