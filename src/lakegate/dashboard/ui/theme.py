"""How the dashboard looks: Streamlit's theme, light and dark, and the style of our own elements.

The status colours are from Okabe and Ito's palette, which colour-blind people can distinguish, darkened or lightened
until text in them has a contrast of 4.5 on its background. A status never shows by colour alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup

from lakegate.dashboard.ui.page import Page

_LIGHT = {
    "backgroundColor": "#ffffff",
    "secondaryBackgroundColor": "#f5f6f8",
    "textColor": "#1c2430",
    "primaryColor": "#1f5fbf",
    "linkColor": "#1f5fbf",
    "borderColor": "#e1e5ea",
    "dataframeBorderColor": "#e1e5ea",
    "chartCategoricalColors": ["#1f5fbf", "#b4530a", "#00785a", "#8a4f9e", "#7a6a00", "#5b6573"],
}
_DARK = {
    "backgroundColor": "#12161c",
    "secondaryBackgroundColor": "#1a1f27",
    "textColor": "#e4e8ee",
    "primaryColor": "#3874d4",
    "linkColor": "#8ab8ff",
    "borderColor": "#2b323d",
    "dataframeBorderColor": "#2b323d",
    "chartCategoricalColors": ["#6ea8fe", "#f0995a", "#4cc9a0", "#cf9fdd", "#d8c44a", "#9aa5b4"],
}
_COMMON = {
    "baseFontSize": 14,
    "baseRadius": "6px",
    "buttonRadius": "6px",
    "headingFontSizes": ["1.6rem", "1.2rem", "1.05rem", "1rem", "1rem", "1rem"],
    "headingFontWeights": [650, 600, 600, 600, 600, 600],
    "codeFontSize": "0.86rem",
    "linkUnderline": False,
    "showWidgetBorder": True,
    "showSidebarBorder": True,
}
LOGO = (Path(__file__).parent / "logo.svg").read_text(encoding="utf-8")
_STYLE = (Path(__file__).parent / "style.css").read_text(encoding="utf-8")
_SIDEBAR = {"light": "#f7f8fa", "dark": "#0e1116"}


def theme_options() -> Mapping[str, Any]:
    """Return Streamlit's options for the theme, by dotted name."""
    options: dict[str, Any] = {f"theme.{name}": value for name, value in _COMMON.items()}
    for kind, colours in (("light", _LIGHT), ("dark", _DARK)):
        options |= {f"theme.{kind}.{name}": value for name, value in colours.items()}
        options[f"theme.{kind}.sidebar.backgroundColor"] = _SIDEBAR[kind]
    return options


_FACE = """@font-face {{ font-family: "Source Sans"; font-weight: 100 900; font-display: swap;
  src: url({}) format("woff2"); }}
"""
_FIRST = """
html {{ font-size: {size}px; }}
.lg-first {{ position: fixed; inset: 0; z-index: 1000000; overflow: auto; color-scheme: light dark;
  background: {ground}; font-family: "Source Sans", "Source Sans Pro", sans-serif; }}
.lg-first * {{ box-sizing: border-box; }}
.lg-first > aside {{ position: fixed; inset: 0 auto 0 0; width: 216px; padding: .75rem 2rem; background: {side}; }}
.lg-first > main {{ margin-left: 216px; padding: 2.2rem 2.2rem 4rem; max-width: 1480px; }}
.lg-first .figures {{ margin: .8rem 0 4.1rem; }}
@media (max-width: 768px) {{
  .lg-first > aside {{ display: none; }}
  .lg-first > main {{ margin: 0; padding: 2.6rem 1rem 3rem; }}
}}
"""
# The symbols' font comes with Streamlit. An icon that is given to st.Page would also become the tab's, and that one
# browsers would fetch from Google.
_ICON = """
[data-testid="stSidebarNavLink"][href$="/{path}"]::before {{ content: "{icon}" / ""; }}"""


def style(pages: tuple[Page, ...]) -> str:
    """Return the style sheet of all pages."""
    icons = "".join(_ICON.format(path=page.path, icon=page.icon) for page in pages if page.listed)
    return f"<style>{_STYLE}{icons}</style>"


def first_part(content: Markup, font: str | None = None) -> str:
    """Return the first part of a page, where Streamlit will draw it, with the style of our elements.

    Args:
        font: Address of Streamlit's own font, which its style sheet would name later.
    """
    face = "" if font is None else _FACE.format(font)
    look = _FIRST.format(
        ground=f"light-dark({_LIGHT['backgroundColor']}, {_DARK['backgroundColor']})",
        side=f"light-dark({_SIDEBAR['light']}, {_SIDEBAR['dark']})",
        size=_COMMON["baseFontSize"],
    )
    aside = f"<aside>{LOGO}</aside>"
    return f'<style>{face}{_STYLE}{look}</style><div class="lg-first">{aside}<main class="lg">{content}</main></div>'


def waiting() -> str:
    """Return what a document shows until Streamlit, two megabytes of scripts, draws the page in its place."""
    look = ".lg-waiting {{ position: fixed; inset: 0; display: grid; place-content: center; background: {} }}"
    dark = f"@media (prefers-color-scheme: dark) {{ {look.format(_DARK['backgroundColor'])} }}"
    return f'<style>{look.format(_LIGHT["backgroundColor"])} {dark}</style><div class="lg-waiting">{LOGO}</div>'
