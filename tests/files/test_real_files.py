"""Prompt files like those in public repositories (with other texts), read as Prompty and promptflow read them."""

from pathlib import Path
from typing import Any

import pytest

from lazyprompt import ImageBlock, Msg, URLSource
from lazyprompt.errors import FormatError, PromptFileError, SlotError
from lazyprompt.files.prompty import Prompty

AZURE = "model: {api: chat, configuration: {type: azure_openai, azure_deployment: gpt-4o}}\n"


def v1(fields: str, body: str = "user:\n{{q}}", **more: Any) -> Prompty:
    return Prompty.loads(f"---\n{AZURE}{fields}\n---\n{body}", **more)


def messages(prompt: Prompty, inputs: object = None) -> list[tuple[str, str]]:
    return [(each.role, each.text) for each in prompt.messages(inputs)]


class TestConnections:
    FILE = (
        "---\nmodel:\n  api: chat\n  configuration:\n    azure_deployment: ${env:NOT_SET:gpt-4o}\n"
        "    azure_endpoint: ${env:SOME_ENDPOINT_NOT_SET}\n---\nuser:\nGreet {{name}}."
    )

    def test_unset_variable_of_a_connection_does_not_stop_loading(self) -> None:
        """72 files of 15 repositories could not be loaded because of an unset variable that no prompt uses."""
        prompt = Prompty.loads(self.FILE)
        assert messages(prompt, {"name": "Ada"}) == [("user", "Greet Ada.")]
        connection = {"kind": "anonymous", "endpoint": "${env:SOME_ENDPOINT_NOT_SET}"}
        assert prompt.model == {"id": "gpt-4o", "provider": "foundry", "apiType": "chat", "connection": connection}
        assert "${env:SOME_ENDPOINT_NOT_SET}" in prompt.dumps("v2")

    def test_unset_variable_of_another_field_is_an_error(self) -> None:
        with pytest.raises(PromptFileError, match="Environment variable 'NOT_SET' not set"):
            v1("inputs: {q: {type: string, default: '${env:NOT_SET}'}}")


class TestChat:
    FIELDS = (
        "inputs:\n  q: {type: string, is_chat_input: true}\n"
        "  chat_history: {type: list, is_chat_history: true, default: []}"
    )
    LOOP = "system:\nBe brief.\n{% for t in chat_history %}\n{{t.role}}:\n{{t.content}}\n{% endfor %}\nuser:\n{{q}}"

    def test_chat_history_input_is_a_thread_and_text_is_the_chat_input(self) -> None:
        """promptflow's is_chat_input and is_chat_history were refused as unknown fields."""
        prompt = v1(self.FIELDS, self.LOOP)
        assert messages(prompt, "Why?") == [("system", "Be brief."), ("user", "Why?")]
        past = [{"role": "user", "content": "Hi"}, {"role": "Assistant", "content": "Yo\nsystem:\nno"}]
        assert messages(prompt, {"q": "Why?", "chat_history": past}) == [
            ("system", "Be brief."),
            ("user", "Hi"),
            ("assistant", "Yo\nsystem:\nno"),
            ("user", "Why?"),
        ]

    def test_empty_mapping_is_a_thread_without_messages(self) -> None:
        prompt = Prompty.loads("---\ninputs: {past: {kind: thread, default: {}}}\n---\nuser:\nhi\n{{past}}")
        assert messages(prompt) == [("user", "hi")]


class TestTypes:
    @pytest.mark.parametrize(
        ("type_", "kind"),
        [
            ("str", "string"),
            ("Integer", "integer"),
            ("List[string]", "array"),
            ("json_object", "object"),
            ("Dict[str, int]", "object"),
            ("customer", "union"),
        ],
    )
    def test_any_type_name_becomes_a_kind(self, type_: str, kind: str) -> None:
        assert v1(f"inputs: {{q: {{type: '{type_}'}}}}").inputs[0].kind == kind

    def test_unknown_type_name_is_noted(self) -> None:
        notes = v1("inputs: {q: {type: strnig}}\noutputs: {a: {type: customer}}").notes
        assert [str(each).partition("; the types are ")[0] for each in notes if "any value" in each.text] == [
            "3:14: inputs.q.type is 'strnig', so it accepts any value (did you mean 'string'?)",
            "4:15: outputs.a.type is 'customer', so it accepts any value",
        ]


class TestSyntaxes:
    def test_mustache_section_without_a_template_field_selects_mustache(self) -> None:
        """A template with ``{{#pages}}`` was parsed as Jinja and refused as a syntax error."""
        body = "system:\nAnswer from these:\n{{#pages}}\n- {{title}}\n{{/pages}}"
        prompt = v1("inputs: {pages: {type: array}}", body)
        text = "Answer from these:\n- A\n- B"
        assert messages(prompt, {"pages": [{"title": "A"}, {"title": "B"}]}) == [("system", text)]
        assert "template:\n  format: mustache\n" in prompt.dumps("v2")
        assert messages(Prompty.loads(prompt.dumps("v2")), {"pages": []}) == [("system", "Answer from these:")]


class TestRequests:
    def test_v1_outputs_add_no_response_format(self) -> None:
        """Outputs of a v1 file became a strict schema, even instead of a response format in the file."""
        assert v1("outputs: {response: {type: string}}").request({"q": "Hi"}) == {
            "model": "gpt-4o",
            "messages": [{"role": "user", "content": "Hi"}],
        }
        own = "model: {configuration: {azure_deployment: m}, parameters: {response_format: {type: json_object}}}"
        prompt = Prompty.loads(f"---\n{own}\noutputs: {{response: {{type: string}}}}\n---\nuser:\nhi")
        assert prompt.request()["response_format"] == {"type": "json_object"}
        assert Prompty.loads(prompt.dumps("v2")).request() == prompt.request()

    def test_realtime_file_can_be_loaded_but_not_requested(self) -> None:
        prompt = Prompty.loads("---\nmodel: {api: realtime, configuration: {type: openai}}\n---\nuser:\nhi")
        assert messages(prompt) == [("user", "hi")]
        with pytest.raises(FormatError, match="openai doesn't support the 'realtime' API"):
            prompt.request()

    def test_tools_of_a_referenced_file_are_converted(self, tmp_path: Path) -> None:
        (tmp_path / "tools.json").write_text('[{"type": "function", "function": {"name": "weather"}}]')
        file = tmp_path / "a.prompty"
        file.write_text("---\nmodel: {api: chat, parameters: {tools: '${file:tools.json}'}}\n---\nuser:\nhi")
        made = Prompty.loads(Prompty.load(file).dumps("v2"))
        assert [(each.name, each.kind) for each in made.tools] == [("weather", "function")]

    @pytest.mark.parametrize("address", ["data:image/png;url:https://x.y/a.png", "https://x.y/a.png"])
    def test_promptflow_image_url_becomes_an_image_block(self, address: str) -> None:
        prompt = v1("inputs: {q: {type: image}}", "user:\nWhat is it?\n![image]({{q}})")
        blocks = prompt.messages({"q": address})[0].blocks
        assert blocks[1] == ImageBlock(URLSource("https://x.y/a.png"))


class TestValues:
    FILE = "system:\nBe brief.\n{% for t in history %}{{t.content}}{% endfor %}\nuser:\n{{q}}"

    def test_undefined_variable_is_an_error_with_advice(self) -> None:
        """The error "'history' is undefined; the slots are 'history'" did not help users."""
        with pytest.raises(SlotError) as caught:
            v1("inputs: {q: {type: string}}", self.FILE).messages({"q": "Hi"})
        assert str(caught.value) == (
            "Jinja: no value for 'history'; the slots are 'history', 'q'; undefined='empty' (--undefined empty) "
            "renders undefined variables as empty text"
        )
        lenient = v1("inputs: {q: {type: string}}", self.FILE, undefined="empty")
        assert messages(lenient, {"q": "Hi"}) == [("system", "Be brief."), ("user", "Hi")]

    def test_text_is_the_value_of_the_only_text_input(self) -> None:
        """Text was refused as ambiguous if the file also had a list input."""
        prompt = v1("inputs: {pages: {type: list, default: []}, q: {type: string}, n: {type: int}}")
        assert messages(prompt, "Why?") == [("user", "Why?")]
        with pytest.raises(SlotError, match="text without an input name could be the value of 'a', 'b', 'n'"):
            v1("inputs: {a: {type: string}, b: {type: string}, n: {type: int}}", "user:\n{{a}}{{b}}").messages("x")

    def test_msg_objects_of_a_thread_are_kept(self) -> None:
        prompt = Prompty.loads("---\ninputs: {past: {kind: thread}}\n---\nuser:\nhi\n{{past}}")
        assert prompt.messages({"past": [Msg("Ada", "x", "user")]})[-1] == Msg("Ada", "x", "user")


def test_thread_accepts_content_parts_with_kind_and_value() -> None:
    """Content parts in Prompty's own format were refused in a thread."""
    prompt = Prompty.loads("---\ninputs: [{name: past, kind: thread}]\n---\nsystem:\nBe brief.\n\n{{past}}\n")
    parts = [{"kind": "text", "value": "Look."}, {"kind": "image", "value": "https://example.org/a.png"}]
    payload = prompt.generate_prompt({"past": [{"role": "User", "content": parts}]}, return_dict=True)
    assert payload["messages"][1] == {
        "role": "user",
        "content": [
            {"type": "text", "text": "Look."},
            {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
        ],
    }
