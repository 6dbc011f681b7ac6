"""The report of a payload: losses become an error at every door, and a report stays one."""

import pickle
from collections.abc import Callable

import pytest

from lazyprompt import ChatFormatter, ChatPrompter, FormatError, OnlineChatModule, Prompty
from lazyprompt.formatters.report import Entry, Payload, Report
from lazyprompt.messages.msg import AudioBlock, Base64Source, Msg, TextBlock

HISTORY = [Msg("Ann", [TextBlock("Listen:"), AudioBlock(Base64Source("audio/wav", "UklGRg=="))], "user")]
LOSS = "messages[0].content[1] (audio) left out: anthropic does not accept audio"
PROMPTER = ChatPrompter("Be brief.", system="")
FILE = Prompty.loads("---\nmodel: m\n---\nsystem:\nBe brief.\n\nuser:\nWhy?")
DOORS: dict[str, Callable[[], Payload]] = {
    "formatter": lambda: ChatFormatter("anthropic").format(HISTORY),
    "prompter": lambda: PROMPTER.generate_prompt("Why?", HISTORY, format="anthropic"),
    "module": lambda: OnlineChatModule("anthropic").prompt(PROMPTER).payload("Why?", HISTORY),
    "file": lambda: FILE.generate_prompt(None, HISTORY, format="anthropic"),
    "request": lambda: FILE.request(messages=HISTORY, provider="anthropic"),
}


@pytest.mark.parametrize("door", DOORS)
def test_losses_are_an_error_at_every_door(door: str) -> None:
    payload = DOORS[door]()
    (loss,) = payload.report.losses
    assert str(loss).endswith(LOSS[len("messages[0]") :])
    with pytest.raises(FormatError) as caught:
        payload.report.raise_for_losses()
    assert str(caught.value) == f"the payload would lose content: {loss}"
    again = pickle.loads(pickle.dumps(payload))  # noqa: S301 - our own pickle
    assert again.report == payload.report
    assert again.report.losses == (loss,)


def test_changes_without_loss_are_no_error() -> None:
    report = Report((Entry("messages", "name", "left out", "why"), Entry("messages[1]", "text", "moved", "why")))
    assert report.losses == ()
    report.raise_for_losses()
    Report().raise_for_losses()
    assert isinstance(Payload({}).report, Report)
