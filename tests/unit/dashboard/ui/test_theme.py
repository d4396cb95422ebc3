"""The colours: text is readable on its background, in light and dark (WCAG 2.1, AA)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lakegate.dashboard.ui import shell
from lakegate.dashboard.ui.shell import theme_options

_TEXT, _PART = 4.5, 3.0
_STYLE = (Path(shell.__file__).parent / "style.css").read_text(encoding="utf-8")
_COLOURS = {
    name: dict(zip(("light", "dark"), pair, strict=True))
    for name, *pair in re.findall(r"--lg-(\w+): light-dark\((#\w{6}), (#\w{6})\)", _STYLE)
}


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("kind", ["light", "dark"])
def test_text_can_be_read(kind: str) -> None:
    options = {name.removeprefix(f"theme.{kind}."): value for name, value in theme_options().items()}
    behind = [options[name] for name in ("backgroundColor", "secondaryBackgroundColor", "sidebar.backgroundColor")]
    words = {name: _COLOURS[name][kind] for name in ("ok", "bad", "warn", "live", "off", "text", "muted")}
    words |= {name: options[name] for name in ("textColor", "linkColor")}
    pale = {(name, back): contrast(colour, back) for name, colour in words.items() for back in behind}
    assert {pair: ratio for pair, ratio in pale.items() if ratio < _TEXT} == {}
    assert contrast(_COLOURS["text"][kind], _COLOURS["mark"][kind]) >= _TEXT
    assert contrast("#ffffff", options["primaryColor"]) >= _TEXT, "words on a button are white"
    assert contrast(options["primaryColor"], options["backgroundColor"]) >= _PART
    assert contrast(_COLOURS["accent"][kind], options["backgroundColor"]) >= _PART, "what has the focus is outlined"
    charted = [contrast(one, options["backgroundColor"]) for one in options["chartCategoricalColors"]]
    assert min(charted) >= _PART
