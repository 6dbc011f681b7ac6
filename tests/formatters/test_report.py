"""The report of a payload, and losses raised as an error at every entry point."""

import pickle
from collections.abc import Callable

import pytest

from formatters.helpers import IMAGE, MEDIA, call, result
from formatters.payloads import judged
from lazyprompt import ChatFormatter, ChatPrompter, FormatError, Msg, OnlineChatModule, Prompty, ThinkingBlock
from lazyprompt.formatters.report import Entry, Payload, Report
from lazyprompt.messages.msg import AudioBlock, Base64Source, ImageBlock, TextBlock, ToolResultBlock, ToolUseBlock
from support.conversations import JPEG

HISTORY = [Msg("Ann", [TextBlock("Listen:"), AudioBlock(Base64Source("audio/wav", "UklGRg=="))], "user")]
LOSS = "messages[0].content[1] (audio) left out: anthropic does not accept audio"
PROMPTER = ChatPrompter("Be brief.", system="")
FILE = Prompty.loads("---\nmodel: m\n---\nsystem:\nBe brief.\n\nuser:\nWhy?")
ENTRY_POINTS: dict[str, Callable[[], Payload]] = {
    "formatter": lambda: ChatFormatter("anthropic").format(HISTORY),
    "prompter": lambda: PROMPTER.generate_prompt("Why?", HISTORY, format="anthropic"),
    "module": lambda: OnlineChatModule("anthropic").prompt(PROMPTER).payload("Why?", HISTORY),
    "file": lambda: FILE.generate_prompt(None, HISTORY, format="anthropic"),
    "request": lambda: FILE.request(messages=HISTORY, provider="anthropic"),
}


@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
def test_raise_for_losses_raises_for_payloads_of_every_entry_point(entry_point: str) -> None:
    payload = ENTRY_POINTS[entry_point]()
    (loss,) = payload.report.losses
    assert str(loss).endswith(LOSS[len("messages[0]") :])
    with pytest.raises(FormatError) as caught:
        payload.report.raise_for_losses()
    assert str(caught.value) == f"the payload would lose content: {loss}"
    again = pickle.loads(pickle.dumps(payload))  # noqa: S301 - our own pickle
    assert again.report == payload.report
    assert again.report.losses == (loss,)


def test_raise_for_losses_accepts_changes_without_a_loss() -> None:
    report = Report((Entry("messages", "name", "left out", "why"), Entry("messages[1]", "text", "moved", "why")))
    assert report.losses == ()
    report.raise_for_losses()
    Report().raise_for_losses()
    assert isinstance(Payload({}).report, Report)


PROVIDERS = "anthropic", "gemini", "ollama-generate", "mistral", "openai", "openai-responses"
NAMES = dict(zip("AGLMOR", PROVIDERS, strict=True))
PARTS = TextBlock(""), TextBlock("1"), ThinkingBlock("So."), call("d", a="1"), result("e", "2"), IMAGE
THOUGHT = ThinkingBlock("Hm.", "eA==", provider="nobody")
CALLS = ToolUseBlock("c1", "f g", signature="eA=="), ToolUseBlock("c1", "f", raw_input="x")
OGG = AudioBlock(Base64Source("audio/ogg", "T2dn"))
# A conversation that breaks rules of each provider.
ODD = [
    Msg("assistant", "Welcome. ", "assistant"),
    Msg("user", [ThinkingBlock("Why?"), TextBlock("hi"), OGG], "user"),
    Msg("assistant", [THOUGHT, *(TextBlock(text, signature="eA==") for text in " a"), *CALLS], "assistant"),
    Msg("system", "Be brief.", "system"),
    Msg("tool", [ToolResultBlock("c1", "f g", PARTS, is_error=True)], "tool"),
    *(Msg("user", text, "user") for text in ("\n", "And?")),
    Msg("assistant", [TextBlock("b"), ThinkingBlock("End.", "eA==", provider="anthropic")], "assistant"),
    Msg("assistant", "It is ", "assistant"),
]
# The entries for it in order, each with the providers that have it.
ENTRIES = [
    ("AGLMOR",
     "messages[1].content[0] (thinking) left out: a message with the role user cannot contain reasoning | Why?"),
    ("M", "messages[2].content[0] (thinking) left out: $ did not send it | Hm."),
    ("O", "messages[1].content[2] (audio) left out: $ accepts audio/wav, audio/mpeg, not audio/ogg"),
    ("ALR", "messages[1].content[2] (audio) left out: $ does not accept audio"),
    ("A", "messages[2].content[0] (thinking) left out: $ did not sign it | Hm."),
    ("GLO", "messages[2].content[0] (thinking) left out: $ does not accept reasoning | Hm."),
    ("R", "messages[2].content[0] (thinking) left out: it has no id from $ | Hm."),
    ("ALMOR", "messages[2].content[1] (signature) left out: $ does not sign texts and calls"),
    ("AGLM", "messages[2].content[1] (text) changed: $ does not accept blank text |  "),
    ("ALMOR", "messages[2].content[2] (signature) left out: $ does not sign texts and calls"),
    ("L", "messages[2].content[3] (tool_use) left out: $ does not support tools | {}"),
    ("AMOR", "messages[2].content[3] (signature) left out: $ does not sign texts and calls"),
    ("L", "messages[2].content[4] (tool_use) left out: $ does not support tools | {'raw_input': 'x'}"),
    ("AGMOR", ("messages[2].content[4] (tool_use) changed: "
     "the arguments are not a JSON object, so they are sent under raw_input")),
    ("L", "messages[4].content[0] (tool_result) left out: $ does not support tools | \n1"),
    ("MOR", "messages[4].content[0] (tool_result) changed: $ does not support error results"),
    ("L", "messages[4] (message) left out: it has no content left"),
    ("AGMOR", "messages[4].content[0].output[2] (thinking) left out: a result can only contain text and media | So."),
    ("AGMOR",
     "messages[4].content[0].output[3] (tool_use) left out: a result can only contain text and media | {'a': '1'}"),
    ("AGMOR", "messages[4].content[0].output[4] (tool_result) left out: a result can only contain text and media | 2"),
    ("AGLM", "messages[5].content (text) changed: $ does not accept blank text | \n"),
    ("R", "messages[7].content[1] (thinking) left out: it has no id from $ | End."),
    ("AGLM", "messages[5] (message) left out: it has no content left"),
    ("A", "messages[7] (thinking) left out: nothing follows the reasoning | End."),
    ("GLO", "messages[7].content[1] (thinking) left out: $ does not accept reasoning | End."),
    ("M", "messages[7].content[1] (thinking) left out: $ did not send it | End."),
    ("AGMOR", "messages[2] (id) changed: the id 'c1' is already used; replaced by 'c1_2'"),
    ("AGMOR", "messages[4].content[0] (tool_result) moved: a result must directly follow its call"),
    ("AGMOR", "messages[2] (tool_result) added: the call 'c1_2' has no result, and every call needs one"),
    ("A", "messages[3] (text) moved: system text must follow a user turn"),
    ("GLM", "messages[3] (text) moved: system text must be at the front"),
    ("M", "messages[2] (id) changed: 'c1' is written 'f3cc179c5' for $ | c1"),
    ("AGMOR", "messages[2] (name) changed: 'f g' is written 'f_g_3c8028e4' for $ | f g"),
    ("M", "messages[2] (id) changed: 'c1_2' is written 'dd1d14524' for $ | c1_2"),
    ("GMO", "messages[2] (tool_result) moved: $ only accepts its media from the user"),
    ("AG", "messages (message) added: $ requires a user turn first"),
    ("M", "messages[2] (message) added: $ requires an assistant turn between results and the user turn"),
    ("A", "messages[7] (text) changed: $ does not accept trailing white space | It is "),
    ("GM", "messages (message) added: $ requires a user turn last"),
]  # fmt: skip


def report_lines(formatter: ChatFormatter, *messages: Msg) -> list[str]:
    """The report of a valid payload, each entry with its text."""
    return [f"{entry} | {entry.text}".removesuffix(" | ") for entry in judged(formatter, *messages).report]


@pytest.mark.parametrize("letter", NAMES)
def test_report_contains_every_change_of_an_invalid_conversation_with_its_reason(letter: str) -> None:
    name = NAMES[letter]
    assert report_lines(ChatFormatter(name), *ODD) == [
        line.replace("$", name) for letters, line in ENTRIES if letter in letters
    ]


SAID = Msg("assistant", [ThinkingBlock("Hm.", "eA==", provider="anthropic"), TextBlock("a")], "assistant")
ASKED, SYSTEM = Msg("user", "hi", "user"), Msg("system", "Be brief.", "system")
SHOWN = Msg("user", [TextBlock("a"), *MEDIA["image"].values(), *MEDIA["video"].values()], "user")
JPEG_AS_PNG = ImageBlock(Base64Source("image/png", JPEG))
SCENES: list[tuple[str, list[Msg], list[str]]] = [
    ("anthropic", [SYSTEM], ["[0] (text) moved: anthropic requires a user turn, so the system text is sent as one"]),
    ("anthropic", [ASKED, SAID, SYSTEM, ASKED, SAID],
     ["[2] (text) moved: system text must be at the front",
      "[1] (thinking) left out: text before the reasoning has changed since it was signed | Hm."]),
    ("moonshot", [SHOWN],
     [f"[0].content[{at}] ({kind}) left out: moonshot does not accept {kind} by URL; "
      f"pass media=MediaResolver(hosts=[...]) to load it | https://example.com/a.{end}"
      for at, kind, end in ((1, "image", "png"), (3, "video", "mp4"))]),
    ("zhipu", [SHOWN], ["[0].content[4] (video) left out: zhipu does not accept video as data"]),
    ("openai", [Msg("user", [JPEG_AS_PNG], "user", url=["https://a.b/c.mp4", "https://a.b/c"]),
                *(Msg(role, [TextBlock("b"), IMAGE], role) for role in ("assistant", "system"))],
     ["[0].url[0] (video) left out: openai does not accept video as the url | https://a.b/c.mp4",
      "[0].content[0] (image) changed: its MIME type is image/jpeg, not image/png",
      *(f"[{at}].content[1] (image) left out: openai does not accept image from the {role}"
        for at, role in ((1, "assistant"), (2, "system")))]),
]  # fmt: skip


@pytest.mark.parametrize(("provider", "messages", "lines"), SCENES)
def test_report_contains_rare_changes_with_their_reasons(provider: str, messages: list[Msg], lines: list[str]) -> None:
    formatter = ChatFormatter(provider, model="claude-3-5-sonnet" if provider == "anthropic" else None)
    assert report_lines(formatter, *messages) == [f"messages{line}" for line in lines]
