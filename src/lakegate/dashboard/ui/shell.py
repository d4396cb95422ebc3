"""The frame around each page: navigation, login, style, polling for changes, and the HTML document it comes in.

The document is what a browser shows until Streamlit's 2 MB of scripts have loaded: the logo, and on the home page its
tables, which come with the document before any script has run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import streamlit as st
from anyio import to_thread
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

from lakegate.dashboard.ui import actions, markup, parts
from lakegate.dashboard.ui.access import Access, Visitor
from lakegate.dashboard.ui.pages import Page, find_pages, home
from lakegate.dashboard.ui.session import actor, current_visitor, shared
from lakegate.errors import LakegateError
from lakegate.progress import redact

_POLL_EVERY_S = 4.0
_PAGE = "lg-page"


def show() -> None:
    """Draw the requested page."""
    pages = find_pages()
    st.set_page_config(page_title="lakegate", page_icon=LOGO, layout="wide", initial_sidebar_state="auto")
    st.html(style(pages))
    visitor = current_visitor()
    if not visitor.may_see:
        # Register every page: for an unknown path, Streamlit would show its own dialog.
        closed = [_streamlit_page(replace(page, show=lambda: _ask_to_log_in(visitor))) for page in pages]
        st.navigation(closed, position="hidden").run()
        return
    st.logo(LOGO, size="large")
    opened = st.navigation([_streamlit_page(page) for page in pages], position="sidebar")
    if st.session_state.get(_PAGE) != opened.url_path:
        st.session_state[_PAGE] = opened.url_path
        parts.forget_filters()
    with st.sidebar:
        _show_sidebar_footer(visitor)
    actions.show_outcomes()
    with parts.boundary("this page"):
        opened.run()
    _poll_for_changes()


def _streamlit_page(page: Page) -> Any:
    return st.Page(
        page.show,
        title=page.title,
        url_path=page.path or None,
        default=not page.path,
        visibility="visible" if page.listed else "hidden",
    )


def _ask_to_log_in(visitor: Visitor) -> None:
    if visitor.name is not None:
        parts.show_empty(
            "You don't have access to this dashboard",
            Markup("You are logged in as {}.").format(markup.text(visitor.name)),
            Markup("Its operator can add you to {} in lakegate.toml.").format(markup.code("ui.users")),
        )
        if shared().access.login == "oidc" and st.button("Log out"):
            st.logout()
        return
    parts.show_empty("This lakehouse's dashboard", "Log in to see it.")
    if shared().access.login == "oidc" and st.button("Log in", type="primary"):
        st.login()


def _show_sidebar_footer(visitor: Visitor) -> None:
    lake = shared().lake
    where = lake.settings.catalog.uri
    lines = [
        Markup('<div title="{}"><b>{}</b></div>').format(lake.home, markup.text(lake.home.name or "/", longest=40)),
        Markup("<div>{}</div>").format(markup.text("local stack" if where is None else redact(where), longest=60)),
        Markup("<div>{}</div>").format("actions allowed" if visitor.may_act else "read-only"),
    ]
    if visitor.name is not None:
        lines.append(Markup("<div>{}</div>").format(markup.text(visitor.name, longest=60)))
    parts.html(Markup('<div class="who">{}</div>').format(Markup("").join(lines)))
    if shared().access.login == "oidc" and st.button("Log out", type="tertiary"):
        st.logout()


def _poll_for_changes() -> None:
    """Redraw the page when the journal has changed, unless a dialog is open."""
    seen: list[object] = []

    @st.fragment(run_every=_POLL_EVERY_S)
    def look() -> None:
        parts.keep_jobs_alive()
        version = _version()
        if not seen:
            seen.append(version)
        elif version not in seen and not st.session_state.get("lg-busy"):
            st.rerun()

    with st.container(key="lg-pulse"):
        look()


def _version() -> object:
    """Return a value that changes when a run or an action of the visitor starts, progresses or ends."""
    model = shared().model
    works = tuple((id(work), work.is_done) for work in shared().actions.of(actor()))
    try:
        journal = model.journal
        runs, _ = journal.count()
        return works, tuple(sorted(runs.items())), tuple(journal.pages.with_prefix("", limit=1))
    except LakegateError as error:
        model.mark_unavailable("journal", error)
        return works, error.code


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
# The icon font comes with Streamlit. An icon passed to st.Page would also become the tab's icon, which browsers fetch
# from Google.
_ICON = """
[data-testid="stSidebarNavLink"][href$="/{path}"]::before {{ content: "{icon}" / ""; }}"""


def style(pages: tuple[Page, ...]) -> str:
    """Return the style sheet of all pages."""
    icons = "".join(_ICON.format(path=page.path, icon=page.icon) for page in pages if page.listed)
    return f"<style>{_STYLE}{icons}</style>"


def prerendered(content: Markup, font: str | None = None) -> str:
    """Return ``content`` placed where Streamlit will draw the page, with its style.

    Args:
        font: URL of Streamlit's font, to load it before Streamlit's style sheet.
    """
    face = "" if font is None else _FACE.format(font)
    look = _FIRST.format(
        ground=f"light-dark({_LIGHT['backgroundColor']}, {_DARK['backgroundColor']})",
        side=f"light-dark({_SIDEBAR['light']}, {_SIDEBAR['dark']})",
        size=_COMMON["baseFontSize"],
    )
    aside = f"<aside>{LOGO}</aside>"
    return f'<style>{face}{_STYLE}{look}</style><div class="lg-first">{aside}<main class="lg">{content}</main></div>'


def loading_screen() -> str:
    """Return the logo, shown until Streamlit draws the page in its place."""
    look = ".lg-waiting {{ position: fixed; inset: 0; display: grid; place-content: center; background: {} }}"
    dark = f"@media (prefers-color-scheme: dark) {{ {look.format(_DARK['backgroundColor'])} }}"
    return f'<style>{look.format(_LIGHT["backgroundColor"])} {dark}</style><div class="lg-waiting">{LOGO}</div>'


_TABLES_TIMEOUT_S = 1.5
"""Seconds that a document waits for the tables. If the catalog is slower, the page itself waits, and says so."""
_PARALLEL_DOCUMENTS = 2
# Without this, a click on one of our links reloads the whole page. With it, Streamlit navigates as if the visitor had
# gone back or forward. Opening a link in a new tab, or copying it, still works.
_LINK_SCRIPT = """
document.addEventListener("click", (event) => {
  const link = event.target.closest && event.target.closest("a.lg-go");
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  if (link.closest(".lg-first")) return;
  event.preventDefault();
  history.pushState({}, "", link.href);
  window.dispatchEvent(new PopStateEvent("popstate"));
  window.scrollTo(0, 0);
});
"""
_MODULE = re.compile(r'<script type="module" crossorigin src="([^"]+)"></script>')
_LINK = re.compile(r'<link rel="(modulepreload|stylesheet)" crossorigin href="([^"]+)">')
_FONT = re.compile(r'href="([^"]+)"\s+as="font"')
# Start Streamlit only once the tables are painted. Otherwise the browser would first wait for its style sheet, queued
# behind some fifty scripts, and run scripts for half a second. A background window never paints: start it after 1 s.
_START_SCRIPT = """
let lgStarted = false;
const lgAdd = (kind, given) => document.head.append(Object.assign(document.createElement(kind), given));
const lgStart = () => {
  if (lgStarted) return;
  lgStarted = true;
  for (const [rel, href] of %s) lgAdd("link", { rel, crossOrigin: "", href });
  lgAdd("script", { type: "module", crossOrigin: "", src: %s });
};
requestAnimationFrame(() => setTimeout(lgStart));
setTimeout(lgStart, 1000);
"""
# Remove the prerendered part once Streamlit has drawn the page, or shows a dialog.
_HANDOVER_SCRIPT = """
const lgFirst = document.querySelector(".lg-first"), lgSince = Date.now(), lgLook = setInterval(() => {
  const app = document.querySelector('[data-testid="stApp"]');
  const drawn = app && app.dataset.testScriptState === "notRunning" && document.querySelector("#root .lg-title");
  if (!drawn && !document.querySelector('[role="dialog"]') && Date.now() - lgSince < 30000) return;
  clearInterval(lgLook);
  const main = document.querySelector('[data-testid="stMain"]');
  if (main) main.scrollTop = lgFirst.scrollTop;
  lgFirst.remove();
}, 50);
"""


def documents(access: Access, hosts: Sequence[str]) -> list[Route]:
    """Return the routes of the pages' documents: Streamlit's document with our title, links and the server's address.

    Without that address, a browser first looks for the server below each page's own URL, and logs errors.

    Args:
        hosts: Host names that the server answers to; empty for any.
    """
    base = urlsplit(access.settings.url or "").path.strip("/")
    shown = (Path(st.__file__).parent / "static" / "index.html").read_text(encoding="utf-8")
    address = json.dumps(f"/{base}/" if base else "/")
    server = f"window.__streamlit = {{ BACKEND_BASE_URL: new URL({address}, location.origin).href }};"
    script = f"<script>{server}{_LINK_SCRIPT}</script>"
    shown = shown.replace("<title>Streamlit</title>", f"<title>lakegate</title>{script}")
    shown = shown.replace('href="./favicon.png"', 'href="data:,"')
    empty = shown.replace('<div id="root">', f'<div id="root">{loading_screen()}')
    before, root, after = shown.partition('<div id="root">')
    module, font = _MODULE.search(before), _FONT.search(before)
    start = "" if module is None else _START_SCRIPT % (json.dumps(_LINK.findall(before)), json.dumps(module[1]))
    before = before if module is None else _LINK.sub("", _MODULE.sub("", before))
    after = after.replace("</body>", f"<script>{start}{_HANDOVER_SCRIPT}</script></body>")
    limiter = anyio.CapacityLimiter(_PARALLEL_DOCUMENTS)

    async def document(request: Request) -> HTMLResponse:
        content = None
        if _may_see(access, hosts, request) and not request.url.query:
            with anyio.move_on_after(_TABLES_TIMEOUT_S):
                content = await to_thread.run_sync(_tables, limiter=limiter, abandon_on_cancel=True)
        if content is None:
            return HTMLResponse(empty, headers={"Cache-Control": "no-cache"})
        page = f"{before}{prerendered(content, None if font is None else font[1])}{root}{after}"
        return HTMLResponse(page, headers={"Cache-Control": "no-store"})

    async def plain(_: Request) -> HTMLResponse:
        return HTMLResponse(empty, headers={"Cache-Control": "no-cache"})

    prefix = f"/{base}" if base else ""
    paths = {f"{prefix}/{page.path}": document if page.path == "" else plain for page in find_pages()}
    return [Route(path, endpoint, methods=["GET"]) for path, endpoint in sorted(paths.items())]


def _may_see(access: Access, hosts: Sequence[str], request: Request) -> bool:
    # Another site's host name could point here (DNS rebinding). OpenID Connect logins are known to Streamlit only.
    if access.login == "oidc" or (hosts and (request.url.hostname or "").lower() not in hosts):
        return False
    return access.visitor({"user": request.headers.get(access.settings.user_header or "")}).may_see


def _tables() -> Markup | None:
    with suppress(Exception):  # the page itself shows what's wrong
        return home.prerendered()
    return None
