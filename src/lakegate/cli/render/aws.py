"""Deployments on AWS: plans, states, and what would be deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakegate.cli.render.console import add_row, make_table, next_commands, safe, say, show
from lakegate.cli.render.text import count, counted, moment, plain, size

if TYPE_CHECKING:
    from lakegate.aws.values import BucketContent, Change, Deployed, Plan, Status, Survey

_STYLES = {"add": "green", "modify": "yellow", "remove": "red"}
_WORDS = {"add": "make", "modify": "change", "remove": "remove"}


def show_plan(plan: Plan, command: str) -> None:
    """Print what a deployment would do, and the command that does it."""
    if not plan.changes:
        say(f"[bold green]up to date[/]  {safe(plan.stack)}; nothing would change")
        return
    say(f"[bold]plan[/]  {safe(_totals(plan))}; nothing was done")
    table = make_table("resource", "", "kind", "what")
    for change in plan.changes:
        word, what = _WORDS.get(change.action, change.action), _what(change)
        add_row(table, change.resource, word, change.type, what, style=_STYLES.get(change.action))
    show(table)
    next_commands(("Do it", command))


def tell_plan(plan: Plan) -> None:
    """Tell what is about to be done. Narration: goes to stderr."""
    click.echo(_totals(plan), err=True)
    for change in plan.changes:
        word = _WORDS.get(change.action, change.action)
        what = _what(change)
        click.echo(
            f"  {word:<7} {plain(change.resource)} ({plain(change.type)}){what and f': {plain(what)}'}", err=True
        )
    for change in plan.changes:
        if change.leaves_data:
            click.echo(f"DATA: what {plain(change.resource)} holds is kept, and not used any more", err=True)


def show_deployed(done: Deployed, command: str) -> None:
    """Print what is there now."""
    word = "deployed" if done.changed else "up to date"
    say(f"[bold green]{word}[/]  {safe(done.stack)}" + ("" if done.changed else "; nothing had to change"))
    _say_facts(done.outputs)
    next_commands(("See how it is", command))


def show_status(status: Status) -> None:
    """Print a deployment as it is."""
    style = "green" if status.state.endswith("_COMPLETE") and "ROLLBACK" not in status.state else "red"
    say(f"[bold]{safe(status.stack)}[/]  [{style}]{safe(status.state)}[/]")
    if status.reason:
        say(f"  {safe(status.reason)}")
    _say_facts(status.outputs)
    if status.waiting is not None:
        say(f"  [dim]{'queue':<14}[/] {count(status.waiting)} waiting, {count(status.in_flight)} being worked on")
    if status.dead is not None:
        text = f"{counted(status.dead, 'notification')} given up" if status.dead else "empty"
        say(f"  [dim]{'dead letters':<14}[/] {'[red]' if status.dead else ''}{text}{'[/]' if status.dead else ''}")
    if status.function:
        one = status.function
        say(
            f"  [dim]{'function':<14}[/] {safe(one.state)}, {safe(one.runtime)}, code {safe(one.code_sha256[:12])}, "
            f"changed {safe(one.modified_at)}"
        )
    if status.missing:
        say(f"  [dim]{'missing':<14}[/] [red]{safe(', '.join(status.missing))}[/]")
    if status.drifted is not None:
        text = f"[yellow]{safe(', '.join(status.drifted))}[/]" if status.drifted else "none"
        say(f"  [dim]{'drift':<14}[/] {text}")
    if status.errors:
        say("", "[bold]Last errors[/]")
        say(*(f"  [dim]{moment(error.time)}[/] {safe(error.text)}" for error in status.errors))


def tell_survey(found: Survey, *, keep_data: bool) -> None:
    """Tell what would be deleted, and what kept. Narration: goes to stderr."""
    if found.state is not None:
        click.echo(f"Stack {found.stack} ({found.state}), {counted(len(found.resources), 'resource')}:", err=True)
        for one in found.resources:
            click.echo(f"  {plain(one.resource)} ({plain(one.type)}) {plain(one.id)}", err=True)
    if found.code:
        click.echo(f"Functions' zips: {_bucket(found.code)}", err=True)
    data = [
        *((f"bucket {_bucket(found.data)}",) if found.data else ()),
        *(f"table {name}" for name in found.tables),
        *(f"database {name}" for name in found.databases),
        *(f"snapshot {name}" for name in found.snapshots),
    ]
    for line in data:
        click.echo(f"{'Kept' if keep_data else 'DATA'}: {plain(line)}", err=True)


def show_destroyed(found: Survey, *, deleted: bool, keep_data: bool) -> None:
    """Print what became of a deployment."""
    if not deleted:
        say(f"[bold green]gone[/]  there is nothing of {safe(found.stack)} to delete")
        return
    say(f"[bold green]deleted[/]  {safe(found.stack)}")
    if keep_data and found.has_data:
        say("  [dim]its data was kept[/]")


def _totals(plan: Plan) -> str:
    amounts = {word: sum(change.action == action for change in plan.changes) for action, word in _WORDS.items()}
    told = ", ".join(f"{word} {number}" for word, number in amounts.items() if number)
    return f"{'New stack' if plan.is_new else 'Stack'} {plan.stack}: {told or counted(len(plan.changes), 'change')}"


def _what(change: Change) -> str:
    anew = {"true": "made anew", "conditional": "perhaps made anew"}.get(change.replacement or "", "")
    return ": ".join(filter(None, (anew, ", ".join(change.properties))))


def _bucket(content: BucketContent) -> str:
    return f"{content.name}, {counted(content.objects, 'version')} of objects, {size(content.size_bytes)}"


def _say_facts(facts: dict[str, str]) -> None:
    say(*(f"  [dim]{safe(name):<14}[/] {safe(value)}" for name, value in facts.items()))
