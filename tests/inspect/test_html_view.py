"""HTML views: every text is shown completely and escaped."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
import zlib
from base64 import b64decode, b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import html5lib
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2 import Environment, nodes

import lazyprompt.inspect
from lazyprompt import (
    ApproximateTokenCounter,
    Base64Source,
    Budget,
    ChatPrompter,
    FileBlock,
    ImageBlock,
    Msg,
    OnlineChatModule,
    Prompt,
    Rendered,
    Reply,
    Secret,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    TrimReport,
    URLSource,
)
from lazyprompt._base.secret import SecretText
from lazyprompt.budget.report import Account, ItemTokens, Tokens
from lazyprompt.inspect.look import CallArguments, look
from lazyprompt.inspect.notebook import Room, messages_html
from support.model_server.server import Answer, ModelServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from xml.etree.ElementTree import Element

    from playwright.sync_api import Page

HOSTILE: Final = (
    "<script>window.__ran = 1; alert(1)</script>",
    "<img src=x onerror='window.__ran=2'>",
    "\"'><svg onload=window.__ran=3>",
    "</style></pre></bdi><style>*{display:none}</style>",
    "<iframe src=https://example.org></iframe><a href='javascript:window.__ran=4'>x</a>",
    "&lt;b&gt; &amp;amp; &#x3c;",
    "<!-- --> ]]> <![CDATA[",
    "\x1b[31mred\x1b[0m \x9b2J",
    "\u202eevil\u202c \u2066x\u2069",
    "\u200b\U000e0041\U000e007f\ufeff\u00ad",
    "\x00\x07\x08\x0c\x85\r\n",
    "\ufffe\uffff\ufdd0\U0001ffff",
    "שלום (עולם) 中文 👨\u200d👩 é\u0301\u0301",
    "\n\n\tx",
)
TEXTS: Final = st.lists(st.one_of(st.sampled_from(HOSTILE), st.text(max_size=8)), max_size=4).map("".join)
# Texts that were truncated or decoded wrongly.
BROKEN: Final = st.lists(st.one_of(TEXTS, st.sampled_from(["\ud800", "\udfff\ud83d"])), max_size=4).map("".join)

STYLE: Final = re.findall("<style>(.*?)</style>", Msg("a", "b", "user")._repr_html_(), re.DOTALL)[0]
TAGS: Final = frozenset(
    "div style p pre bdi span ul li details summary img table caption thead tbody tr th td".split()  # noqa: SIM905
)
CLASSES: Final = frozenset(re.findall(r"\.(lp-[a-z0-9-]+)", STYLE)) | {"lp-block", "lp-developer", "lp-system"}
SLOTS: Final = r"q|r|m|markers|system|instruction|user|input|history|tools|slot \d+"
VALUES: Final = {
    "title": re.compile(rf"({SLOTS})(, not trusted)?(; neutralised)?|U\+[0-9A-F]{{4,6}}( [A-Z0-9 -]+)?"),
    "data-n": re.compile(r"\d+"),
    "dir": re.compile("auto"),
    "scope": re.compile("col"),
    "style": re.compile(r"width:\d{1,3}%"),
    "aria-hidden": re.compile("true"),
    "aria-label": re.compile("slots and their tokens"),
    "alt": re.compile(r"image/(png|jpeg|gif|webp), \d+ × \d+ pixels"),
    "src": re.compile(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+={0,2}"),
}


# A valid image of a type that is not shown.
BMP: Final = b"BM" + struct.pack("<IHHIIiiHHIIiiII", 58, 0, 0, 54, 40, 1, 1, 1, 24, 0, 4, 0, 0, 0, 0) + bytes(4)


def png(width: int, height: int) -> str:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    body = zlib.compress(bytes((width + 1) * height)) if width * height < 10_000 else b""
    return b64encode(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")).decode()


def parse_html(html: str) -> Element:
    """Parse a view strictly, and check its tags and attributes."""
    html.encode()
    whole: Element = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parseFragment(html)
    for each in whole.iter():
        assert each is whole or each.tag in TAGS, each.tag
        for name, value in each.attrib.items():
            if name == "class":
                assert set(value.split()) <= CLASSES | {"lazyprompt"}, value
            else:
                assert VALUES[name].fullmatch(value), (name, value)
    (root,) = whole
    assert root.attrib == {"class": "lazyprompt"}
    assert [each.text for each in whole.iter("style")] == [STYLE]
    return root


def element_text(element: Element) -> str:
    """The text of an element, with escaped characters decoded."""
    return "".join(_said(element))


def _said(element: Element) -> Iterator[str]:
    if element.get("class") == "lp-sign":
        yield chr(int((element.text or "").removeprefix("U+"), 16))
    elif element.tag not in ("style", "summary"):
        yield element.text or ""
        for child in element:
            yield from _said(child)
            yield child.tail or ""


def texts(html: str) -> list[str]:
    return [element_text(each) for each in parse_html(html).iter("pre")]


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.lists(BROKEN, min_size=1, max_size=4))
def test_html_of_a_rendered_prompt_contains_the_whole_text(values: list[str]) -> None:
    parts = ["begin", *(part for value in values for part in (value, "\n"))]
    slots = ["m", *(slot for at, _ in enumerate(values) for slot in ("qr"[at % 2], "m"))]
    rendered = Rendered(parts, slots)
    assert "".join(texts(rendered._repr_html_())) == rendered.text


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(TEXTS, TEXTS)
def test_html_of_a_prompt_contains_all_its_texts(one: str, other: str) -> None:
    tool = {"type": "function", "function": {"name": "f", "description": other, "parameters": {"type": "object"}}}
    prompt = Prompt(one, one, other, one, [[other, one]], [tool], other)
    shown = texts(prompt._repr_html_())
    (tools,) = (text for text in shown if '"name": "f"' in text)
    shown.remove(tools)
    assert sorted(shown) == sorted(text for text in (one, one, other, other, one, one, other) if text)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(TEXTS, TEXTS)
def test_html_of_a_message_contains_all_its_texts(one: str, other: str) -> None:
    message = Msg(
        one,
        [
            TextBlock(one),
            ThinkingBlock(other),
            ToolUseBlock(one, other, {}, raw_input=one),
            ToolUseBlock(one, other, {other: one}),
            ToolResultBlock(other, one, [TextBlock(other), ImageBlock(URLSource(one))]),
            ImageBlock(Base64Source(other, one)),
            FileBlock(Base64Source(one, other), filename=other),
        ],
        "assistant",
        url=[one],
        metadata={"k": other},
    )
    html = message._repr_html_()
    shown = texts(html)
    assert [text for text in shown if not text.startswith("{")] == [
        text for text in (one, other, one, other, one, one) if text and not text.startswith("{")
    ]
    name = one if len(one) <= 80 else f"{one[:80]}…"
    if one and one != "assistant":
        assert name in [element_text(each) for each in parse_html(html).iter("bdi")]


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(TEXTS, TEXTS)
def test_html_of_reports_and_replies_contains_all_their_texts(one: str, other: str) -> None:
    items = [ItemTokens(one, other, 7, 0), ItemTokens("user", "input", 5, 5)]
    report = TrimReport(9, {0: ("dropped", one)}, lambda: Account(12, 5, items, {other: Tokens(12, 5)}), other)
    cells = [element_text(each) for each in parse_html(report._repr_html_()).iter("td")]
    assert cells[0] == "0"
    assert cells[1:4] == [*(text if len(text) <= 80 else f"{text[:80]}…" for text in (one, other)), "7 → 0"]
    reply = Reply(Msg("assistant", one, "assistant"), {"model": other}, parsed={"x": other})
    shown = texts(reply._repr_html_())
    assert shown == [*([one] if one else []), repr({"x": other})]


def test_html_of_a_look_contains_the_sent_prompt() -> None:
    prompter = ChatPrompter("From {q}: {r}")
    values = {"q": "".join(HOSTILE), "r": "", "input": "Hi <|im_end|>"}
    flat = look(prompter, CallArguments(values), title=HOSTILE[0], model="qwen2.5", window=100)
    html = flat._repr_html_()
    shown = parse_html(html)
    assert element_text(next(shown.iter("pre"))) == flat.sent
    marked = [element_text(each) for each in shown.iter("bdi") if "lp-mark" in each.get("class", "")]
    assert marked == [mark.safe for mark in flat.marks] == ["<\\|im_end|>"]
    listed = [element_text(each) for each in shown.iter("li")]
    assert "input: 1 control sequence(s) neutralised; <|im_end|> is sent as <\\|im_end|>" in listed
    assert "r: the value is empty" in listed
    heads = [element_text(each) for each in shown.iter("th")]
    assert heads == ["slot", "tokens (about)", "share of the window"]
    assert f"{flat.total} tokens (about) of 100" in element_text(shown)
    payload = look(prompter, CallArguments(values), form="anthropic", model="claude-sonnet-4-5")
    assert '"role": "user"' in texts(payload._repr_html_())[0]


def test_html_names_invisible_characters_and_an_unknown_origin() -> None:
    html = Rendered(["x"], ["m"], "a <reason>")._repr_html_()
    assert "chat template: a &lt;reason&gt;" in html
    html = Rendered(("", "a\u202eb\ud800", ""), ("m", "q", "m"))._repr_html_()
    assert '<span class="lp-sign" title="U+202E RIGHT-TO-LEFT OVERRIDE">U+202E</span>' in html
    assert '<span class="lp-sign" title="U+D800">U+D800</span>' in html


def test_html_has_slot_colors_and_a_legend() -> None:
    html = Rendered(("a", "b", "c", "d", "e"), ("markers", "q", "markers", "r", "markers"))._repr_html_()
    legend = [element_text(each) for each in parse_html(html).iter("li")]
    assert legend == ["markers 3", "q 1", "r 1", "not trusted"]
    assert {f"lp-hue{at}" for at in range(9)} < CLASSES


@pytest.mark.slow
@pytest.mark.parametrize(
    "rendered",
    [
        Rendered(["x" * 5_000_000], ["m"]),
        Rendered(["", "\x00" * 1_000_000, ""], ["m", "q", "m"]),
        Rendered(["<'>"] * 30_001, ["m", "q"] * 15_000 + ["m"]),
        Rendered(["\n" * 1_000_000], ["m"]),
    ],
    ids=["long", "hidden signs", "many segments", "lines"],
)
def test_html_of_a_long_prompt_is_limited_in_size(rendered: Rendered) -> None:
    html = rendered._repr_html_()
    assert len(html) < 2_000_000
    left = re.search(r"… ([\d,]+) more characters are not shown here", html)
    assert left
    shown = re.sub("</?(bdi|pre)[^>]*>", "", html)
    folded = re.search(r"<summary>([\d,]+) more characters</summary>", shown)
    assert folded
    head = len(rendered.text) - int(left[1].replace(",", "")) - int(folded[1].replace(",", ""))
    assert 60 <= head <= 4_000


@pytest.mark.slow
def test_html_of_long_conversations_and_reports_is_folded_and_cut() -> None:
    html = messages_html([Msg("user", "x" * 100, "user")] * 5_000)
    assert len(html) < 500_000
    assert re.search(r"<summary>[\d,]+ more messages</summary>", html)
    assert re.search(r"… [\d,]+ more messages are not shown here", html)
    _, report = Budget(500, ApproximateTokenCounter()).fit([{"role": "user", "content": "hello"}] * 3_000)
    assert len(report._repr_html_()) < 1_000_000
    assert "more rows are not shown here" in report._repr_html_()
    blocks = Msg("user", [TextBlock("x" * 300_000), TextBlock("y")], "user")._repr_html_()
    assert "… 1 more blocks are not shown here" in blocks


JPEG = b"\xff\xd8\xff\xc0\x00\x0b\x08\x00\x03\x00\x02\x01\x01\x11\x00\xff\xd9"
WEBP = b"RIFF\x16\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x02\x00\x00"


PICTURES: Final = {
    "png": ("image/png", png(2, 3), True),
    "png as jpeg": ("image/jpeg", png(2, 3), True),  # the detected type is shown
    "svg": ("image/svg+xml", b64encode(b"<svg onload='alert(1)'/>").decode(), False),
    "svg as png": ("image/png", b64encode(b"<svg onload='alert(1)'/>").decode(), False),
    "bmp": ("image/png", b64encode(BMP).decode(), False),
    "no base64": ("image/png", 'not base64 "><script>', False),
    "most": ("image/png", png(8_000, 5_000), True),
    "more": ("image/png", png(8_000, 5_001), False),
    "gif": ("image/gif", b64encode(b"GIF89a\x02\x00\x03\x00\x00\x00\x00").decode(), True),
    "jpeg": ("image/jpeg", b64encode(JPEG).decode(), True),
    "webp": ("image/webp", b64encode(WEBP).decode(), True),
    "bomb": ("image/png", png(30_000, 30_000), False),  # a few bytes, and gigabytes in a browser
    "large": ("image/png", png(2, 3) + "A" * 4_000_000, False),
}


@pytest.mark.parametrize(("media_type", "data", "shown"), PICTURES.values(), ids=PICTURES)
def test_image_is_shown_only_if_its_bytes_are_a_supported_image(media_type: str, data: str, shown: bool) -> None:  # noqa: FBT001 - a parameter
    root = parse_html(Msg("user", [ImageBlock(Base64Source(media_type, data))], "user")._repr_html_())
    kind = media_type if data.startswith(("R0lG", "/9j", "UklG")) else "image/png"
    assert [each.get("src") for each in root.iter("img")] == ([f"data:{kind};base64,{data}"] if shown else [])
    assert ("not shown" in element_text(root)) is not shown


@pytest.mark.slow
def test_images_share_a_size_limit_and_image_urls_are_shown_as_text() -> None:
    # Bytes after the end of an image count towards the limit.
    large = b64encode(b64decode(png(2, 3)) + bytes(600_000)).decode()
    root = parse_html(Msg("user", [ImageBlock(Base64Source("image/png", large))] * 9, "user")._repr_html_())
    assert len([*root.iter("img")]) == 2
    assert [Room(pictures=len(large) - less).picture(Base64Source("", large)) is None for less in (0, 1)] == [
        False,
        True,
    ]
    address = ImageBlock(URLSource("https://example.org/x.png"))
    html = Msg("user", [address], "user", url="https://example.org/y")._repr_html_()
    assert "src=" not in html
    assert "href=" not in html
    assert texts(html) == ["https://example.org/x.png", "https://example.org/y"]


def test_html_contains_no_secrets() -> None:
    key = SecretText("sk-never-shown", "${env:KEY}")
    call = ToolUseBlock("c", "f", {})
    object.__setattr__(call, "input", {"key": [key]})
    result = ToolResultBlock("c", key, key)
    shown = [
        Rendered((key,), ("m",))._repr_html_(),
        Prompt(system=key, input=key)._repr_html_(),
        Msg(key, [TextBlock(key), ThinkingBlock(key), call, result], "user", url=key)._repr_html_(),
        ChatPrompter("{q}").render({"q": Secret("sk-never-shown"), "input": ""})._repr_html_(),
        Reply(Msg("a", key, "assistant"), {"model": key, "headers": {"k": "sk-never-shown"}}, {"k": key})._repr_html_(),
    ]
    for html in shown:
        assert "***" in html
        assert "never" not in html


@pytest.mark.slow
def test_html_of_a_module_response_contains_its_text_calls_and_usage() -> None:
    answer = Answer("At <nine>.", calls=(("c1", "hours", {"day": "Sunday"}),), finish="tool_calls", prompt_tokens=31)
    with ModelServer(answer) as server:
        asked = OnlineChatModule("ollama", model="qwen3", base_url=server.url("ollama"))
        html = asked("When?")._repr_html_()
    root = parse_html(html)
    shown = element_text(root)
    for part in ("model: ", "ended: tool_calls", "prompt 31", "At <nine>.", "hours", '"day": "Sunday"'):
        assert part in shown
    assert "a-key-of-a-test" not in html


class SaysItIsHtml(str):
    """Text with ``__html__``, which Jinja and markupsafe do not escape."""

    __slots__ = ()

    def __html__(self) -> str:
        return self


@pytest.mark.parametrize("kind", [str, SaysItIsHtml])
def test_value_with_an_html_method_is_escaped(kind: type[str]) -> None:
    html = every_view(kind("<script>window.__ran = 1</script>"))
    assert "<script" not in html
    for view in html.split('<div class="lazyprompt">')[1:]:
        parse_html(f'<div class="lazyprompt">{view}')


def test_every_template_output_is_escaped_by_a_filter() -> None:
    source = (Path(lazyprompt.inspect.__file__).parent / "views" / "views.html").read_text(encoding="utf-8")
    tree = Environment(autoescape=True).parse(source)
    macros = {node.name for node in tree.find_all(nodes.Macro)} | {"caller", "cells"}

    def is_safe(node: nodes.Node) -> bool:
        if isinstance(node, nodes.CondExpr):
            return is_safe(node.expr1) and (node.expr2 is None or is_safe(node.expr2))
        if isinstance(node, nodes.Call):
            called = node.node.node if isinstance(node.node, nodes.Getitem) else node.node
            return isinstance(called, nodes.Name) and called.name in macros | {"views"}
        if isinstance(node, nodes.Filter):
            return node.name in {"plain", "signs", "count", "joined", "hue"}
        return isinstance(node, nodes.TemplateData | nodes.Const)

    outputs = [part for node in tree.find_all(nodes.Output) for part in node.nodes]
    assert len(outputs) > 100
    assert [part for part in outputs if not is_safe(part)] == []
    assert [node.name for node in tree.find_all(nodes.Filter) if node.name in {"safe", "forceescape"}] == []


@pytest.mark.slow
def test_jinja_is_imported_only_when_html_is_made() -> None:
    code = (
        "import sys, lazyprompt; r = lazyprompt.Rendered(('a',), ('m',)); assert 'jinja2' not in sys.modules; "
        "r._repr_html_(); assert 'jinja2' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)  # noqa: S603 - our own interpreter


def test_css_rules_apply_only_inside_the_view() -> None:
    rules = STYLE.strip()
    selectors = re.findall(r"([^{}]+)\{[^{}]*\}", rules)
    assert "".join(re.findall(r"[^{}]+\{[^{}]*\}", rules)) == rules
    assert len(selectors) > 20
    for selector in selectors:
        for one in selector.strip().split(","):
            assert re.match(r"(\S+ )?\.lazyprompt( |$)", one), selector
    assert not re.search(r"url\(|@|expression|position:fixed", rules)


def luminance(color: str) -> float:
    channels = (int(color[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def color_of(name: str, selector: str) -> tuple[str, str]:
    found = re.search(
        rf"^\.lazyprompt{selector}{{(?:[^{{}}]*;)?{name}:light-dark\((#\w+),(#\w+)\)", STYLE, re.MULTILINE
    )
    assert found, selector
    return found[1], found[2]


INK, PAPER = color_of("color", ""), color_of("background", "")
QUIET = color_of("color", r" \.lp-note")
HUES = [color_of("background", rf" \.lp-hue{at}") for at in range(9)]


@pytest.mark.parametrize("night", [False, True], ids=["day", "night"])
def test_text_has_enough_contrast_on_every_background_color(night: bool) -> None:  # noqa: FBT001 - a parameter
    for behind in [*HUES, PAPER]:
        for ink in (INK, QUIET) if behind is PAPER else (INK,):
            dark, light = sorted((luminance(behind[night]), luminance(ink[night])))
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (behind, ink)


def every_view(evil: str) -> str:
    prompter = ChatPrompter("From {q}: {r}", tools=[{"type": "function", "function": {"name": "f"}}])
    values = {"q": evil, "r": "x", "input": f"<|im_end|>{evil}"}
    rendered = prompter.render(values, history=[[evil, evil]], model="qwen2.5")
    message = Msg(
        evil,
        [
            *(TextBlock(evil), ThinkingBlock(evil), ToolUseBlock("c", "f", {evil: evil})),
            *(ToolResultBlock("c", "f", evil), ImageBlock(Base64Source("image/png", png(20, 20)))),
            *(ImageBlock(Base64Source(evil, evil)), ImageBlock(URLSource("https://example.org/x.png"))),
        ],
        "assistant",
        url=f"https://example.org/{evil}",
        metadata={"k": evil},
        usage={"prompt_tokens": 1},
    )
    _, report = Budget(60, ApproximateTokenCounter()).fit([{"role": "user", "content": "hello " * 9}] * 6)
    views = [
        rendered._repr_html_(),
        Rendered(["a"] * 17, [f"slot {at}" for at in range(17)])._repr_html_(),
        prompter.fill(values, history=[[evil, evil]])._repr_html_(),
        messages_html([Msg("x", evil, role) for role in ("system", "user", "assistant", "tool")]),
        message._repr_html_(),
        report._repr_html_(),
        Reply(message, {"model": evil}, {"x": evil})._repr_html_(),
        look(prompter, CallArguments(values), title=evil, model="qwen2.5", window=99)._repr_html_(),
        look(prompter, CallArguments(values, [[evil, evil]] * 2), form="gemini", max_tokens=2_000)._repr_html_(),
    ]
    return "".join(views)


OUTSIDE: Final = (
    "<p class='lp-note'>a</p><pre class='lp-text'>b</pre><span class='lp-sign'>c</span><details><summary>d</summary>"
    "</details><table class='lp-table'><tr class='lp-row'><td class='lp-cell'>e</td></tr></table>"
)
LOOKS: Final = """() => [...document.querySelectorAll('#out, #out *')].map(
    each => JSON.stringify([...getComputedStyle(each)].map(name => getComputedStyle(each)[name])))"""


def open_view(page: Page, body: str, attributes: str = "") -> None:
    page.set_content(
        f"<!doctype html><html lang=en><head><title>views</title></head><body {attributes}>"
        f"<main><h1>Views</h1><div id=out>{OUTSIDE}</div>{body}</main></body></html>"
    )
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")


@pytest.mark.slow
def test_browser_runs_no_script_and_sends_no_request_for_hostile_views(page: Page) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    open_view(page, "")
    before = page.evaluate(LOOKS)
    asked.clear()
    open_view(page, every_view("".join(HOSTILE)) + Rendered(["x\n" * 9_000], ["q"])._repr_html_())
    assert [url for url in asked if not url.startswith("data:image/png;base64,")] == []
    assert page.evaluate("window.__ran") is None
    assert page.evaluate("document.scripts.length + document.querySelectorAll('[id]:not(#out), a, iframe').length") == 0
    assert page.evaluate("document.querySelector('.lp-picture').naturalWidth") == 20
    assert page.evaluate(LOOKS) == before


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_html_views_are_accessible(page: Page, scheme: Any) -> None:
    # Imported only where there is a browser; it has no types.
    from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]  # noqa: PLC0415

    page.emulate_media(color_scheme=scheme)
    open_view(page, every_view(f"<b>{HOSTILE[8]}{HOSTILE[-1]}"))
    page.evaluate("document.querySelector('#out').remove()")
    found = Axe().run(page, options={"resultTypes": ["violations", "passes", "incomplete"]}).response
    assert [(each["id"], each["nodes"][0]["html"]) for each in found["violations"] + found["incomplete"]] == []
    assert len(next(each for each in found["passes"] if each["id"] == "color-contrast")["nodes"]) > 100


@pytest.mark.slow
@pytest.mark.parametrize(
    ("system", "theme", "night"),
    [
        ("light", "", False),
        ("dark", "", True),
        ("light", "data-jp-theme-light=false", True),
        ("dark", "data-jp-theme-light=true", False),
        ("light", "class=vscode-dark", True),
        ("light", "class=vscode-high-contrast", True),
        ("dark", "class='vscode-high-contrast vscode-high-contrast-light'", False),
        ("dark", "class=vscode-light", False),
    ],
)
def test_notebook_theme_overrides_the_system_color_scheme(page: Page, system: Any, theme: str, night: bool) -> None:  # noqa: FBT001 - a parameter
    page.emulate_media(color_scheme=system)
    open_view(page, Msg("a", "b", "user")._repr_html_(), theme)
    behind = page.evaluate("getComputedStyle(document.querySelector('.lazyprompt')).backgroundColor")
    red, green, blue = (int(PAPER[night][at : at + 2], 16) for at in (1, 3, 5))
    assert behind == f"rgb({red}, {green}, {blue})"
