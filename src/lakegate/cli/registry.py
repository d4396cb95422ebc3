"""Which commands there are, where they live, and under which heading ``--help`` shows them."""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """One command: ``module`` is below ``lakegate.cli.commands``, ``attribute`` the click command in it."""

    name: str
    module: str
    attribute: str
    help: str
    panel: str


START, INGEST, LOOK, KEEP, OTHER = PANELS = ("Getting started", "Ingest", "Look", "Keep in order", "Other")

COMMANDS: tuple[Entry, ...] = (
    Entry("demo", "demo", "demo", "See write–audit–publish at work on generated taxi trips.", START),
    Entry("generate", "generate", "generate", "Write synthetic taxi trips as parquet or CSV files.", START),
    Entry("up", "stack", "up", "Start the local stack (Nessie and Spark).", START),
    Entry("down", "stack", "down", "Stop the local stack.", START),
    Entry("status", "stack", "status", "Show what of the local stack is running.", START),
    Entry("ingest", "ingest", "ingest", "Write files to a branch, audit them, publish them.", INGEST),
    Entry("watch", "watch", "watch", "Ingest new files as they come, until stopped.", INGEST),
    Entry("backfill", "backfill", "backfill", "Ingest the files of a range of time, some at a time.", INGEST),
    Entry("audit", "audit", "audit", "Run checks on what a branch adds to a table.", INGEST),
    Entry("publish", "publish", "publish", "Publish an audited branch to main in one commit.", INGEST),
    Entry("discard", "discard", "discard", "Drop a branch and all that was written to it.", INGEST),
    Entry("runs", "runs", "runs", "List runs, or show one: its steps, files and checks.", INGEST),
    Entry("branch", "branch", "branch", "List, create, reset and delete branches.", LOOK),
    Entry("tag", "tag", "tag", "List, create and delete tags.", LOOK),
    Entry("log", "log", "log", "Show the commits of a branch or tag, newest first.", LOOK),
    Entry("diff", "diff", "diff", "Show which tables differ between two references.", LOOK),
    Entry("table", "table", "table", "List tables; look into one; put one back as it was.", LOOK),
    Entry("query", "query", "query", "Run SQL against any branch, tag, commit or time.", LOOK),
    Entry("revert", "revert", "revert", "Undo what a run published, in one commit.", KEEP),
    Entry("recover", "recover", "recover", "Finish or undo runs whose process died.", KEEP),
    Entry("gc", "gc", "gc", "Drop old rejected branches and files that nothing reaches.", KEEP),
    Entry("journal", "journal", "journal", "Show the journal of runs; rebuild it from the history.", KEEP),
    Entry("notify", "notify", "notify", "Show and try out who is told of runs; tell of late tables.", KEEP),
    Entry("aws", "aws", "aws", "Deploy to AWS: plan, deploy, status, destroy.", OTHER),
    Entry("config", "config", "config", "Show the settings in force and where they come from.", OTHER),
    Entry("completion", "completion", "completion", "Print the completion script for your shell.", OTHER),
    Entry("version", "version", "version", "Show the versions of lakegate and what it runs on.", OTHER),
)
