"""The frame of a view in HTML, and how it looks: by day and by night, and nothing beside it.

A view is one string. Its style reaches nothing outside its own class, and it has no script and asks for nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lazyprompt.inspect.html_text import Html, element

if TYPE_CHECKING:
    from collections.abc import Sequence

CLASS: Final = "lazyprompt"
"""The class of every view; the rules of the style all begin with it."""

INK: Final = ("#1b1b1d", "#f1f1f3")
"""The colour of text, by day and by night."""

PAPER: Final = ("#ffffff", "#1b1b1d")
"""The colour behind it."""

QUIET: Final = ("#55555c", "#b4b4bc")
"""The colour of what is said beside."""

HUES: Final[Sequence[tuple[str, str]]] = (
    ("#e2e2e4", "#3d3d42"),
    ("#9cc9ee", "#1f4a78"),
    ("#f3b49b", "#7d3417"),
    ("#eedd88", "#5c4e05"),
    ("#ffb9c6", "#7c2f45"),
    ("#8fd6c0", "#10574a"),
    ("#cdb9ea", "#523a80"),
    ("#cdd66b", "#46510b"),
    ("#a8e6f5", "#0d5868"),
)
"""The colours behind slots, by day and by night; the first is for what is no slot. Those by day are made after Paul
Tol's light scheme, which is for black text on colours that all eyes tell apart (https://personal.sron.nl/~pault/)."""

# A theme of a notebook goes before what the system prefers: JupyterLab and nbconvert, VS Code, Colab.
_BY_DAY: Final = (
    '[data-jp-theme-light="true"]',
    "body.vscode-light",
    "html[theme=light]",
    "body.vscode-high-contrast-light",
)
_BY_NIGHT: Final = (
    '[data-jp-theme-light="false"]',
    "body.vscode-dark",
    "html[theme=dark]",
    "body.vscode-high-contrast:not(.vscode-high-contrast-light)",
)


def page(*parts: Html) -> Html:
    """A view that stands for itself.

    Args:
        *parts: What it shows.
    """
    return element("div", STYLE, *parts, look=CLASS)


def _either(colors: tuple[str, str]) -> str:
    return f"light-dark({colors[0]},{colors[1]})"


def _themed(themes: Sequence[str], scheme: str) -> str:
    return f"{','.join(f'{theme} .{CLASS}' for theme in themes)}{{color-scheme:{scheme}}}"


# A rule a line: what it is for, within the view, and what it says. Notebooks have styles of their own for tables and
# the like, so that what they set is set here too.
_RULES: Final = (
    ("", "color-scheme:light dark"),
    ("", f"color:{_either(INK)};background:{_either(PAPER)};border:1px solid {_either(QUIET)};border-radius:6px"),
    ("", "padding:.6em .8em;font:14px/1.5 system-ui,sans-serif;overflow-wrap:anywhere;print-color-adjust:exact"),
    (".lp-text", "margin:.3em 0;padding:.4em .6em;border:0;color:inherit;font:13px/1.6 ui-monospace,monospace"),
    (".lp-text", f"background:{_either(('#f6f6f8', '#26262a'))};white-space:pre-wrap;overflow:hidden;tab-size:4"),
    (".lp-open", "text-decoration:underline;text-underline-offset:3px"),
    (".lp-slot", "border-radius:3px"),
    (".lp-slot[data-n]::before", "content:attr(data-n);font:bold 9px/1 system-ui,sans-serif;vertical-align:super"),
    (".lp-slot[data-n]::before", "margin-right:2px;display:inline-block;text-decoration:none"),
    *((f".lp-hue{place}", f"background:{_either(hue)};color:inherit") for place, hue in enumerate(HUES)),
    (".lp-mark", f"outline:2px solid {_either(('#b00020', '#ff9aa8'))};outline-offset:-1px"),
    (".lp-sign", f"color:{_either(('#ffffff', '#1b1b1d'))};background:{_either(('#9b1c31', '#ffb0bb'))}"),
    (".lp-sign", "border-radius:3px;padding:0 3px;margin:0 1px;font-size:11px;unicode-bidi:isolate;direction:ltr"),
    (".lp-sign", "display:inline-block;line-height:1.3;text-decoration:none"),
    (".lp-head", "margin:0 0 .3em;display:flex;flex-wrap:wrap;gap:.2em .8em;align-items:baseline"),
    (".lp-title", "font-weight:600"),
    (".lp-note", f"margin:.2em 0;color:{_either(QUIET)};font-size:13px"),
    (".lp-left", "font-style:italic"),
    (".lp-list.lp-list", "margin:.2em 0;padding:0;list-style:none;display:flex;flex-wrap:wrap;gap:.2em .9em"),
    (
        ".lp-cautions.lp-cautions",
        f"margin:.4em 0;padding:.3em .6em .3em 1.8em;background:{_either(('#fff1cc', '#4d3a00'))}",
    ),
    (".lp-field", "margin:.5em 0 0"),
    (".lp-name", "unicode-bidi:isolate"),
    (".lp-message", f"margin:.5em 0;padding-left:.7em;border-left:4px solid {_either(('#8a8a92', '#8a8a92'))}"),
    (".lp-user", f"border-left-color:{_either(('#1d6fb8', '#7db8ee'))}"),
    (".lp-assistant", f"border-left-color:{_either(('#0f7a5c', '#6fd0b2'))}"),
    (".lp-tool", f"border-left-color:{_either(('#a65413', '#f0a878'))}"),
    (".lp-role", f"padding:0 .5em;border-radius:9px;font-weight:600;font-size:12px;background:{_either(HUES[0])}"),
    (".lp-block", "margin:.4em 0"),
    (".lp-picture", "display:block;max-width:min(100%,320px);max-height:240px;margin:.3em 0"),
    (".lp-table", "margin:.4em 0;border-collapse:collapse;border:0;width:auto;font-size:13px;color:inherit"),
    (".lp-table .lp-cell", f"padding:.15em .7em .15em 0;border:0;border-bottom:1px solid {_either(HUES[0])}"),
    (".lp-table .lp-cell", "text-align:start;vertical-align:top;max-width:32em;background:none;color:inherit"),
    (".lp-table .lp-row.lp-row.lp-row", "background:none;color:inherit"),
    (".lp-table .lp-number", "text-align:end;font-variant-numeric:tabular-nums;white-space:nowrap"),
    (".lp-gone", "text-decoration:line-through"),
    (".lp-bar", f"display:block;width:120px;height:.7em;margin-top:.4em;background:{_either(('#d5d5da', '#4a4a52'))}"),
    (".lp-bar .lp-part", f"display:block;height:100%;background:{_either(('#1d6fb8', '#7db8ee'))}"),
    ("summary", "cursor:pointer;font-size:13px"),
)

STYLE: Final = Html(
    "<style>"
    + "".join(f".{CLASS}{' ' * bool(what)}{what}{{{rule}}}" for what, rule in _RULES)
    + _themed(_BY_DAY, "light")
    + _themed(_BY_NIGHT, "dark")
    + "</style>"
)
"""The style of a view; every rule of it is for what is within one."""
