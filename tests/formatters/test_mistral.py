"""Rules of Mistral: ids of nine characters, reasoning in the content, an assistant turn after tool results."""

from formatters.helpers import answering, call, calling, openai_call, openai_calling, result
from formatters.payloads import called, judged
from lazyprompt import AudioBlock, Base64Source, ChatFormatter, FileBlock, Msg, TextBlock, ThinkingBlock, URLSource
from lazyprompt.formatters._repair import AFTER_RESULTS
from support.conversations import PDF, WAV

HI = {"role": "user", "content": "hi"}
FORMATTER = ChatFormatter("mistral")


def test_mistral_call_ids_are_deterministic_and_have_nine_letters_or_digits() -> None:
    payload = judged(FORMATTER, HI, calling(call("call_1"), call("D681PevKs")), answering(result("call_1", "42")))
    assert [call_id for call_id, _ in called(payload)] == ["ef35225de", "D681PevKs"]
    assert [one["tool_call_id"] for one in payload["messages"] if one["role"] == "tool"] == ["ef35225de", "D681PevKs"]
    many = calling(*(call(f"call_{number}") for number in range(100)))
    assert len(set(called(judged(FORMATTER, HI, many)))) == 100


def test_mistral_tool_result_contains_the_tool_name() -> None:
    answer = {"role": "tool", "tool_call_id": "abcdefgh1", "name": "weather", "content": "rain"}
    asked = openai_calling(openai_call("abcdefgh1", "weather"), content="")
    payload = judged(FORMATTER, HI, asked, answer)
    assert payload["messages"] == [HI, asked, answer]
    assert payload.report == ()


def test_mistral_gets_an_assistant_message_between_tool_results_and_user() -> None:
    # "Unexpected role 'user' after role 'tool'"
    exchange = calling(call("abcdefgh1")), answering(result("abcdefgh1", "42"))
    payload = judged(FORMATTER, HI, *exchange, HI)
    assert payload["messages"][3:] == [{"role": "assistant", "content": AFTER_RESULTS}, HI]


def test_mistral_gets_its_own_reasoning_back_and_no_foreign_reasoning() -> None:
    own = ThinkingBlock("Hm.", "c2ln", provider="mistral")
    payload = judged(FORMATTER, HI, Msg("assistant", [own, TextBlock("Hi.")], "assistant"), HI)
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}], "signature": "c2ln"}
    assert payload["messages"][1]["content"] == [thought, {"type": "text", "text": "Hi."}]
    foreign = ThinkingBlock("Hm.", provider="deepseek")
    payload = judged(FORMATTER, HI, Msg("assistant", [foreign, TextBlock("Hi.")], "assistant"), HI)
    assert payload["messages"][1]["content"] == "Hi."
    assert [entry.kind for entry in payload.report if entry.action == "left out"] == ["thinking"]


def test_mistral_audio_and_documents_are_plain_strings() -> None:
    blocks: list[AudioBlock | FileBlock] = [
        AudioBlock(Base64Source("audio/wav", WAV)),
        AudioBlock(URLSource("https://example.com/a.mp3")),
        FileBlock(Base64Source("application/pdf", PDF), filename="a.pdf"),
        FileBlock(URLSource("https://example.com/a.pdf")),
    ]
    payload = judged(FORMATTER, Msg("user", blocks, "user"))
    assert payload["messages"][0]["content"] == [
        {"type": "input_audio", "input_audio": WAV},
        {"type": "input_audio", "input_audio": "https://example.com/a.mp3"},
        {"type": "document_url", "document_url": f"data:application/pdf;base64,{PDF}", "document_name": "a.pdf"},
        {"type": "document_url", "document_url": "https://example.com/a.pdf"},
    ]


def test_mistral_function_without_parameters_gets_an_empty_schema() -> None:
    payload = judged(FORMATTER, HI, tools=[{"type": "function", "function": {"name": "now"}}])
    assert payload["tools"][0]["function"]["parameters"] == {"type": "object", "properties": {}}
