"""The demo's project: a folder of its own, whose settings point to MiniStack."""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from lakegate.config import FILE_NAME, HOME_NAME, Settings, load_settings
from lakegate.errors import ConfigurationError
from lakegate.local.ministack import REGION
from lakegate.private import private_folder

BUCKET = "lakegate-demo"
WAREHOUSE = f"s3://{BUCKET}/warehouse"
_MARK = "# Written by `lakegate demo --aws`"
_PASSED_ON = "LAKEGATE_LOCAL_"
# Otherwise, an alert like that of an earlier demo would only be counted, and the demo would take minutes longer.
_HASTE = '[notify]\ngroup = "0s"\n\n[function]\nretry_s = 3\n'
_HINT = "Choose another folder: lakegate demo --aws --dir FOLDER"


class DemoHome:
    """The folder.

    Args:
        path: Where it is; need not exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.uploads = self.path / "uploads"
        self.function = self.path / HOME_NAME / "function"

    @property
    def journal_url(self) -> str:
        """The journal that the function and the command line share: a file on this machine."""
        return f"sqlite:///{self.path / HOME_NAME / 'journal.db'}"

    @property
    def function_settings(self) -> Path:
        """The function's ``lakegate.toml``. It has no addresses, so it never changes."""
        return self.function / FILE_NAME

    def write(self, endpoint: str, table: str, checks: Sequence[str]) -> None:
        """Create the folder and its settings.

        Args:
            endpoint: Where MiniStack serves.

        Raises:
            ConfigurationError: As :meth:`require_ours`; or it can't be written.
        """
        settings = self.path / FILE_NAME
        self.require_ours()
        try:
            for folder in (self.uploads, self.function):
                private_folder(folder)
            about_table = f"[tables.{json.dumps(table)}]\nchecks = {json.dumps(list(checks))}\n"
            settings.write_text(
                f"{_MARK}, which overwrites it.\n\n{_places(endpoint)}\n{about_table}", encoding="utf-8"
            )
            self.function_settings.write_text(
                f"{_MARK}, which overwrites it.\n\n{_HASTE}\n{about_table}", encoding="utf-8"
            )
        except OSError as error:
            raise self._unusable(error) from error

    @property
    def was_played_in(self) -> bool:
        """Whether an earlier demo had runs."""
        return (self.path / HOME_NAME / "journal.db").exists()

    def require_ours(self) -> None:
        """Make sure that the folder is the demo's.

        Raises:
            ConfigurationError: It's someone's project, or can't be read.
        """
        settings = self.path / FILE_NAME
        try:
            known = settings.read_text(encoding="utf-8", errors="replace") if settings.exists() else None
        except OSError as error:
            raise self._unusable(error) from error
        if not (known or _MARK).startswith(_MARK) or (known is None and self.was_played_in):
            raise ConfigurationError(
                f"{self.path} is your own project; the demo would overwrite it.", hint=_HINT, folder=str(self.path)
            )

    def clear(self) -> None:
        """Delete everything of earlier demos, none of which may be running.

        Raises:
            ConfigurationError: As :meth:`require_ours`; or it can't be deleted.
        """
        self.require_ours()
        try:
            shutil.rmtree(self.path / HOME_NAME)
        except OSError as error:
            raise self._unusable(error) from error

    def settings(self, variables: Mapping[str, str]) -> Settings:
        """Return the settings. Of the variables, only those about the local stack count."""
        return load_settings(self.path, env={k: v for k, v in variables.items() if k.startswith(_PASSED_ON)})

    def _unusable(self, error: OSError) -> ConfigurationError:
        return ConfigurationError(
            f"{error.filename or self.path} can't be used: {error.strerror or error}.", hint=_HINT
        )


def _places(endpoint: str) -> str:
    return f"""\
[catalog]
warehouse = "{WAREHOUSE}"

[s3]
endpoint = "{endpoint}"
region = "{REGION}"
path_style = true
"""


Kind = Literal["clean", "nulls", "truncated"]
Outcome = Literal["published", "rejected", "dead-lettered"]

NULL_COLUMN = "passenger_count"
_NULL_RATE = 0.01
_KEPT = 0.6
_SEEDS = 2**31 - 3


@dataclass(frozen=True, slots=True)
class DemoFile:
    """A file and its expected outcome."""

    kind: Kind
    path: Path
    about: str
    expected: Outcome


def make_files(folder: Path, generate: Callable[..., tuple[Path, ...]], *, rows: int) -> tuple[DemoFile, ...]:
    """Write three new files, and return them in the order of their upload.

    Args:
        generate: :func:`lakegate.sources.synthetic.generate`.
    """
    seed = secrets.randbelow(_SEEDS)
    stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%S}"

    def one(kind: Kind, number: int, **options: Any) -> Path:
        (made,) = generate(folder / kind, files=1, rows=rows, seed=seed + number, overwrite=True, **options)
        named = made.replace(folder / f"{stamp}-{kind}.parquet")
        made.parent.rmdir()
        return named

    clean = one("clean", 0)
    nulls = one("nulls", 1, null_rate=_NULL_RATE, null_columns=(NULL_COLUMN,))
    truncated = one("truncated", 2)
    whole = truncated.read_bytes()
    truncated.write_bytes(whole[: int(len(whole) * _KEPT)])
    return (
        DemoFile("clean", clean, f"{rows:,} good rows", "published"),
        DemoFile("nulls", nulls, f"NULLs in {NULL_COLUMN}", "rejected"),
        DemoFile("truncated", truncated, f"its last {1 - _KEPT:.0%} are missing", "dead-lettered"),
    )
