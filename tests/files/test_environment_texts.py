"""Environment values in a prompt file: requests contain them, printed text and pickles do not."""

import copy
import json
import logging
import pickle
from pathlib import Path

import pytest

from lazyprompt import Prompty
from lazyprompt._base.secret import SecretText

KEY = "sk-abcdef-123456"
FILE = """---
model:
  id: gpt-4o
  connection: {apiKey: "${env:SHOP_KEY}", headers: ["${env:SHOP_KEY}"], endpoint: "${env:NO_SUCH:https://x.y}"}
  options: {additionalProperties: {user: "${env:SHOP_KEY}"}}
inputs: {code: {kind: string, default: "${env:SHOP_KEY}"}}
---
user:
{{ code }}"""


@pytest.fixture
def prompt(monkeypatch: pytest.MonkeyPatch) -> Prompty:
    monkeypatch.setenv("SHOP_KEY", KEY)
    return Prompty.loads(FILE)


def test_printed_prompt_has_no_environment_values(prompt: Prompty, caplog: pytest.LogCaptureFixture) -> None:
    # The value was in the repr of each part of a prompt, and so in logs and tracebacks.
    logging.getLogger("shop").warning("%s %r %s", prompt, prompt.model, prompt.spec)
    key = prompt.model["connection"]["apiKey"]  # type: ignore[index,call-overload]  # a missing key fails the test
    printed = [*map(repr, (prompt, prompt.spec, prompt.inputs)), f"{prompt.model}", f"{key}", f"{key!s:>9}"]
    shown = [*printed, caplog.text]
    assert all(KEY not in text for text in shown)
    assert "***" in shown[1]
    # A default is in the file, so it is no secret.
    assert "https://x.y" in shown[1]


def test_messages_and_requests_have_the_environment_values(prompt: Prompty) -> None:
    assert prompt.messages()[0].text == KEY
    body = prompt.request()
    assert (body["messages"][0]["content"], body["user"], type(body["user"])) == (KEY, KEY, str)
    fields = prompt.to_dict()
    assert json.loads(json.dumps(fields))["model"]["connection"]["headers"] == [KEY]
    assert isinstance(fields["model"]["connection"]["apiKey"], SecretText)  # type: ignore[index,call-overload]  # as above


def test_pickle_reads_environment_values_when_it_is_loaded(prompt: Prompty, monkeypatch: pytest.MonkeyPatch) -> None:
    data = pickle.dumps((prompt, prompt.prompter))
    assert KEY.encode() not in data
    assert pickle.loads(data)[0].messages()[0].text == KEY  # noqa: S301 - our own
    assert copy.deepcopy(prompt) == prompt
    monkeypatch.setenv("SHOP_KEY", "sk-another-one")
    assert pickle.loads(data)[0].messages()[0].text == "sk-another-one"  # noqa: S301 - as above
    monkeypatch.delenv("SHOP_KEY")
    with pytest.raises(ValueError, match="Environment variable 'SHOP_KEY' not set"):
        pickle.loads(data)  # noqa: S301 - as above


def test_written_file_has_the_reference_and_not_the_environment_value(prompt: Prompty, tmp_path: Path) -> None:
    prompt.with_fields(description="A shop.").dump(tmp_path / "a.prompty")
    assert KEY not in (tmp_path / "a.prompty").read_text()
