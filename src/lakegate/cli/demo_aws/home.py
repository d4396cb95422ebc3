"""The project in which the demo plays: a folder of its own, with settings that lead to the MiniStack in it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from lakegate.config import FILE_NAME, HOME_NAME, Settings, load_settings
from lakegate.errors import ConfigurationError
from lakegate.local.ministack import REGION

BUCKET = "lakegate-demo"
WAREHOUSE = f"s3://{BUCKET}/warehouse"
_MARK = "# Written by `lakegate demo --aws`, each time anew."
_PASSED_ON = "LAKEGATE_LOCAL_"
# Else an alert that says the same as that of a demo before would only be counted, and the demo take minutes longer.
_HASTE = '[notify]\ngroup = "0s"\n\n[function]\nretry_s = 3\n'
_HINT = "Give another folder: lakegate demo --aws --dir FOLDER"


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
        """The journal that the function and the command line share: a file, as both are on this machine."""
        return f"sqlite:///{self.path / HOME_NAME / 'journal.db'}"

    @property
    def function_settings(self) -> Path:
        """The ``lakegate.toml`` that goes into the function: no address is in it, so that it stays the same."""
        return self.function / FILE_NAME

    def write(self, endpoint: str, table: str, checks: Sequence[str]) -> None:
        """Make the folder and its settings.

        Args:
            endpoint: Where MiniStack serves.
            table: The demo's table.
            checks: Its checks.

        Raises:
            ConfigurationError: As :meth:`require_ours`; or when it cannot be written.
        """
        settings = self.path / FILE_NAME
        self.require_ours()
        try:
            for folder in (self.uploads, self.function):
                folder.mkdir(parents=True, exist_ok=True)
            about_table = f"[tables.{json.dumps(table)}]\nchecks = {json.dumps(list(checks))}\n"
            settings.write_text(f"{_MARK}\n\n{_places(endpoint)}\n{about_table}", encoding="utf-8")
            self.function_settings.write_text(f"{_MARK}\n\n{_HASTE}\n{about_table}", encoding="utf-8")
        except OSError as error:
            raise self._unusable(error) from error

    @property
    def was_played_in(self) -> bool:
        """Whether an earlier demo got so far as to have runs."""
        return (self.path / HOME_NAME / "journal.db").exists()

    def require_ours(self) -> None:
        """Make sure that the folder is the demo's.

        Raises:
            ConfigurationError: When it is somebody's project, or cannot be read.
        """
        settings = self.path / FILE_NAME
        try:
            known = settings.read_text(encoding="utf-8", errors="replace") if settings.exists() else None
        except OSError as error:
            raise self._unusable(error) from error
        if not (known or _MARK).startswith(_MARK) or (known is None and self.was_played_in):
            raise ConfigurationError(
                f"{self.path} is a project, which the demo would replace.", hint=_HINT, folder=str(self.path)
            )

    def clear(self) -> None:
        """Delete all that earlier demos left. Nothing may be running there any more.

        Raises:
            ConfigurationError: As :meth:`require_ours`; or when it cannot be deleted.
        """
        self.require_ours()
        try:
            shutil.rmtree(self.path / HOME_NAME)
        except OSError as error:
            raise self._unusable(error) from error

    def settings(self, variables: Mapping[str, str]) -> Settings:
        """Return the settings; of the user's variables only those about the local stack's memory and time count."""
        return load_settings(self.path, env={k: v for k, v in variables.items() if k.startswith(_PASSED_ON)})

    def _unusable(self, error: OSError) -> ConfigurationError:
        return ConfigurationError(
            f"{error.filename or self.path} cannot be used: {error.strerror or error}.", hint=_HINT
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
