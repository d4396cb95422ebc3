"""CSV options, checked and put into the one form that Python, Arrow and Spark all understand."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from lakegate.errors import InputError
from lakegate.model.batch import CsvOptions
from lakegate.model.schema import nearest
from lakegate.sources.formats import is_tab_separated
from lakegate.sources.located import Located
from lakegate.sources.paths import shown

# Python's codec name → the name that Spark takes too. The first seven are all that Spark 4 takes by default
# (`CharsetProvider.VALID_CHARSETS`), the others need `spark.sql.legacy.javaCharsets=true`.
_ENCODINGS = {
    "utf-8": "utf-8",
    "utf-8-sig": "utf-8",
    "ascii": "us-ascii",
    "iso8859-1": "iso-8859-1",
    "utf-16": "utf-16",
    "utf-16-le": "utf-16le",
    "utf-16-be": "utf-16be",
    "utf-32": "utf-32",
    **{f"cp{page}": f"windows-{page}" for page in range(1250, 1259)},
    **{f"iso8859-{part}": f"iso-8859-{part}" for part in (2, 3, 4, 5, 6, 7, 8, 9, 13, 15)},
    "koi8-r": "koi8-r",
}
_SPELLED_OUT = {"\\t": "\t", "tab": "\t"}
_NOT_A_DELIMITER = frozenset("\r\n\0")


def normalise_options(csv: CsvOptions | None, files: Sequence[Located]) -> CsvOptions:
    r"""Return the options to read ``files`` with, in the form the engine takes them.

    The encoding becomes its registered name (``latin-1`` → ``iso-8859-1``); ``\t`` and ``tab`` become a tab, which is
    also the default for ``.tsv`` files. An empty value always means NULL, so ``""`` stands in ``null_values`` only
    when there is no other text that does.

    Raises:
        InputError: When the delimiter or quote is not one ASCII character, the encoding is not known, or ``.tsv`` and
            ``.csv`` files are mixed with no delimiter given.

    Example:
        >>> normalise_options(CsvOptions(encoding="latin-1", delimiter="tab", null_values=("", "NA")), ())
        CsvOptions(header=True, delimiter='\t', quote='"', encoding='iso-8859-1', null_values=('NA',))
    """
    options = csv or CsvOptions()
    delimiter = _SPELLED_OUT.get(options.delimiter, options.delimiter)
    if "delimiter" not in options.model_fields_set:
        delimiter = _default_delimiter(files)
    _require_character("delimiter", delimiter)
    if options.quote:
        _require_character("quote", options.quote)
    if delimiter == options.quote:
        raise InputError("Delimiter and quote cannot be the same character.", hint="Change --delimiter.")
    return CsvOptions(
        header=options.header,
        delimiter=delimiter,
        quote=options.quote,
        encoding=_encoding(options.encoding),
        null_values=tuple(dict.fromkeys(text for text in options.null_values if text)) or ("",),
    )


def splits_by_line(encoding: str) -> bool:
    """Tell whether a line feed is always one byte, so that files can be cut into lines before they are decoded."""
    return not encoding.startswith(("utf-16", "utf-32"))


def _default_delimiter(files: Sequence[Located]) -> str:
    tabs = [file for file in files if is_tab_separated(file.name)]
    if tabs and len(tabs) != len(files):
        other = next(file for file in files if not is_tab_separated(file.name))
        raise InputError(
            f"'{shown(tabs[0].path)}' is tab-separated by its name, '{shown(other.path)}' is not.",
            hint="Ingest .tsv and .csv files one after the other, or say --delimiter.",
        )
    return "\t" if tabs else ","


def _require_character(what: str, text: str) -> None:
    if len(text) != 1 or not text.isascii() or text in _NOT_A_DELIMITER:
        raise InputError(
            f"The CSV {what} must be one ASCII character, not {text!r}.", hint=f"For example --{what} ';'.", option=what
        )


def _encoding(name: str) -> str:
    try:
        python_name = codecs.lookup(name).name
    except LookupError:
        python_name = ""
    known = _ENCODINGS.get(python_name)
    if known is None:
        close = nearest(name, ["latin-1", *_ENCODINGS.values()])
        raise InputError(
            f"CSV encoding '{name}' is not supported.",
            hint=(f"Did you mean '{close}'? " if close else "")
            + "Supported: utf-8, us-ascii, latin-1, windows-1252 and its family, utf-16, utf-32. "
            "Convert others to UTF-8, for example with iconv.",
            option="encoding",
        )
    return known
