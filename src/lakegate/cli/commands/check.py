"""Work with contracts: what each table must be like, in a file of the project."""

from __future__ import annotations

import click

from lakegate.cli.app import App
from lakegate.cli.commandline import group
from lakegate.cli.output import count, echo_json, show_rows


@group("check", examples=("lakegate check list", "lakegate check schema > contract.schema.json"), default="list")
def check() -> None:
    """List the project's contracts, or print the JSON Schema by which editors complete them.

    A contract is one YAML file a table, contracts/NAMESPACE.TABLE.yaml: columns, checks, partitioning, freshness and
    owner. Every command reads it where lakegate.toml's section of the table would be.
    """


@check.command("list", examples=("lakegate check list", "lakegate check list -o json"))
def list_contracts(app: App) -> None:
    """List the project's contracts, or say by file, line and column what's wrong with them.

    Reads nothing but these files and the settings.
    """
    from lakegate.contracts.store import FOLDER, Contracts

    found = Contracts(app.folder(), app.settings()).all()
    if app.json:
        echo_json(
            [
                {
                    "table": str(table),
                    "file": one.file,
                    "owner": one.contract.owner,
                    "freshness": one.contract.freshness,
                    "columns": len(one.contract.columns),
                    "checks": [str(each) for each in one.checks],
                }
                for table, one in found.items()
            ]
        )
        return
    rows = (
        (str(table), one.file, count(len(one.contract.columns)), count(len(one.checks)), one.contract.owner or "")
        for table, one in found.items()
    )
    columns = ("table", "file", "columns", "checks", "owner")
    show_rows(columns, rows, right=("columns", "checks"), empty=f"No contracts in {FOLDER}/.")


@check.command("schema", examples=("lakegate check schema > contract.schema.json",), formats=())
def schema(app: App) -> None:
    """Print the JSON Schema of contracts, with the checks of this installation, for editors.

    An editor with a YAML language server uses it for a file that begins with
    "# yaml-language-server: $schema=contract.schema.json".
    """
    from lakegate.contracts.schema import contract_schema

    del app
    click.echo(json_text(contract_schema()))


def json_text(value: object) -> str:
    """Return JSON for people to read and keep."""
    import json

    return json.dumps(value, indent=2, ensure_ascii=False)
