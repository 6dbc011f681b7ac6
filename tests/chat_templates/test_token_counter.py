"""Counting with a model's own tokenizer and chat template, as transformers counts."""

from __future__ import annotations

import base64
import json
import pickle
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from lazyprompt.chat_templates import token_counter as huggingface
from lazyprompt.chat_templates.jinja import ChatJinja
from lazyprompt.chat_templates.source import read_chat_source
from lazyprompt.chat_templates.token_counter import HuggingFaceTokenCounter
from lazyprompt.errors import FormatError, MissingExtraError, TemplateError, TokenizerError
from lazyprompt.messages.msg import (
    AudioBlock,
    ImageBlock,
    Msg,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    URLSource,
    VideoBlock,
)
from lazyprompt.tokens.media import estimate_media_tokens
from support.chat_judges import (
    ARGUMENTS,
    CONVERSATIONS,
    SYSTEM,
    TOOLS,
    USER,
    call,
    deepseek,
    fast_tokenizer,
    result,
    templates,
    tokenizer_in,
)

if TYPE_CHECKING:
    from pathlib import Path

    from lazyprompt.tokens.counter import TokenCounter

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
# A template with a header for each message and a generation prompt.
SIMPLE = (
    "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
CORPUS = [
    *("Hello world, how are you? I am fine, and the weather in Köln is <fine> today.", "你好,世界。今天天气很好。"),
    *(json.dumps(TOOLS), *(template.replace("{", " ") for template in ("system user assistant tool", SIMPLE))),
]
PICTURE: dict[str, Any] = {
    "type": "image_url",
    "image_url": {"url": "data:image/png;base64," + base64.b64encode(b"\x89PNG" + b"\0" * 3000).decode()},
}


def small(kind: str) -> Tokenizer:
    """A small tokenizer of a kind that models have, its special tokens added as models have them."""
    special = [*SPECIAL.values(), "<unk>", "<|user|>", "<|assistant|>"]
    options: dict[str, Any] = {"special_tokens": special, "show_progress": False}
    if kind == "bpe":
        made = Tokenizer(models.BPE())
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer: Any = trainers.BpeTrainer(vocab_size=600, initial_alphabet=alphabet, **options)
    elif kind == "unigram":
        made = Tokenizer(models.Unigram())
        made.normalizer = normalizers.NFKC()
        made.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.UnigramTrainer(vocab_size=200, unk_token="<unk>", **options)  # noqa: S106 - no password
    else:
        made = Tokenizer(models.WordPiece(unk_token="<unk>"))  # noqa: S106 - no password
        made.normalizer = normalizers.BertNormalizer()
        made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(vocab_size=300, **options)
    made.train_from_iterator(CORPUS, trainer)
    # As in some models' files: counts must not be truncated or padded.
    made.enable_truncation(8)
    made.enable_padding(length=64)
    return made


@pytest.fixture(scope="module", params=["bpe", "unigram", "wordpiece"])
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a tokenizer, its special tokens and a chat template."""
    path: Path = tmp_path_factory.mktemp(request.param)
    small(request.param).save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(json.dumps(SPECIAL), encoding="utf-8")
    (path / "chat_template.jinja").write_text(SIMPLE, encoding="utf-8")
    return path


def make_counter(template: str) -> HuggingFaceTokenCounter:
    """A counter with a tokenizer that makes a token of each byte, so that counts are the lengths of texts."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({sign: at for at, sign in enumerate(alphabet)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return HuggingFaceTokenCounter(made, chat_template=template)


def as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


@cache
def vocabulary() -> Tokenizer:
    """DeepSeek's tokenizer, as a counter reads it; once for all templates, since it takes 0.3 s."""
    file = deepseek() / "tokenizer.json"
    return huggingface._load(file, read_chat_source(file))  # noqa: SLF001 - so that it is loaded once


@cache
def real(name: str) -> HuggingFaceTokenCounter:
    """DeepSeek's tokenizer with a model's template."""
    read = vocabulary()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(huggingface, "_load", lambda *_: read)
        return HuggingFaceTokenCounter(deepseek(), chat_template=templates()[name])


@cache
def transformers_own() -> Any:
    """The same tokenizer in transformers."""
    special_tokens = read_chat_source(deepseek()).special_tokens
    return fast_tokenizer(tokenizer_file=str(deepseek() / "tokenizer.json"), **special_tokens)


def reference_count(tokenizer: Any, messages: list[dict[str, Any]], tools: Any = None, **options: Any) -> int | None:
    """The token count of messages in transformers; None if the template refuses them."""
    try:
        made = tokenizer.apply_chat_template(
            messages, tools=tools, tokenize=True, add_generation_prompt=True, return_dict=False, **options
        )
    except Exception:  # noqa: BLE001 - templates raise whatever they like
        return None
    return len(made)


def media_tokens(messages: list[dict[str, Any]]) -> int:
    contents = [message.get("content") for message in messages]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    return sum(estimate_media_tokens(part) for part in parts if part["type"] == "image")


# The number of tests for all templates.
SHARES = 8


@pytest.mark.slow
@pytest.mark.parametrize("share", range(SHARES))
def test_every_template_counts_as_in_transformers_with_a_real_tokenizer(share: int) -> None:
    special_tokens = read_chat_source(deepseek()).special_tokens
    compared = 0
    for name, template in sorted(templates().items())[share::SHARES]:
        counter = real(name)
        shown = ChatJinja(template, special_tokens)
        for special, (messages, tools) in CONVERSATIONS.items():
            counted = counter.count(messages, tools) - media_tokens(messages)
            expected = reference_count(transformers_own(), messages, tools, chat_template=template)
            # transformers renders the repr of content parts if a template knows only text, and no text if a template
            # knows only parts.
            if expected is None or not (shown.shows_parts if special == "parts" else shown.shows_text):
                assert counted >= 0, (name, special)
            else:
                assert counted == expected, (name, special)
                compared += 1
    assert compared > 80


@pytest.mark.parametrize("special", CONVERSATIONS)
def test_small_tokenizers_count_as_in_transformers(directory: Path, special: str) -> None:
    messages, tools = CONVERSATIONS[special]
    theirs = tokenizer_in(directory)
    expected = reference_count(theirs, messages, tools)
    counted = HuggingFaceTokenCounter(directory).count(messages, tools)
    if special == "parts":
        assert counted == (reference_count(theirs, [USER | {"content": "a"}]) or 0) + media_tokens(messages)
    elif special == "nothing":
        assert counted == len(theirs("<s><|assistant|>", add_special_tokens=False)["input_ids"])
    else:
        assert counted == expected


@pytest.mark.parametrize("text", ["", "a", " Hello  world\n", "你好", "<s>Hi</s>", "Ｈｉ　ﬁ", "\x00", "👩‍👩‍👧"])
def test_texts_count_as_in_transformers(directory: Path, text: str) -> None:
    expected = tokenizer_in(directory)(text, add_special_tokens=False)["input_ids"]
    assert HuggingFaceTokenCounter(directory).count_text(text) == len(expected)


def test_text_with_lone_surrogates_is_counted(directory: Path) -> None:
    counter = HuggingFaceTokenCounter(directory)
    assert counter.count_text("\ud83d\ude00") == counter.count_text("😀")
    assert counter.count_text("a\ud800b") == counter.count_text("a\ufffdb")
    assert counter.count([USER | {"content": "\ud800"}]) == counter.count([USER | {"content": "\ufffd"}])


def test_tokenizer_path_may_be_a_directory_or_a_file(directory: Path) -> None:
    counter = HuggingFaceTokenCounter(str(directory))
    assert repr(counter) == f"HuggingFaceTokenCounter({str(directory)!r})"
    expected = counter.count([USER])
    assert HuggingFaceTokenCounter(directory / "tokenizer.json").count([USER]) == expected
    other = HuggingFaceTokenCounter(directory, chat_template="{{ bos_token }}")
    assert other.count([USER]) == other.count_text("<s>") != expected


def test_the_template_for_tools_is_used_with_tools(directory: Path, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes((directory / "tokenizer.json").read_bytes())
    named = [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "{{ tools|tojson }}"}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}), encoding="utf-8")
    counter = HuggingFaceTokenCounter(tmp_path)
    assert counter.count([USER]) == counter.count([USER], []) == counter.count_text("a")
    assert counter.count([USER], TOOLS) == reference_count(tokenizer_in(tmp_path), [USER], TOOLS)


@pytest.mark.parametrize(
    "config",
    [
        {"bos_token": "Hello world"},
        {"additional_special_tokens": ["Hello world"]},
        {"extra_special_tokens": ["Hello world"]},
        {"added_tokens_decoder": {"900": {"content": "Hello world", "special": True}}},
        {"added_tokens_decoder": {"900": {"content": "Hello", "lstrip": True, "rstrip": True, "special": False}}},
        {"added_tokens_decoder": {"0": {"content": "<s>", "rstrip": True, "special": True}}},
        {"image_token": {"__type": "AddedToken", "content": "Hello world", "special": True}},
    ],
    ids=repr,
)
def test_tokens_added_by_the_configuration_count_as_one_token(
    directory: Path, tmp_path: Path, config: dict[str, Any]
) -> None:
    (tmp_path / "tokenizer.json").write_bytes((directory / "tokenizer.json").read_bytes())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    theirs = tokenizer_in(tmp_path)
    counter = HuggingFaceTokenCounter(tmp_path)
    for text in ("Hello world, Hello world", "<s>  Hello  <s>", "a Hello b"):
        assert counter.count_text(text) == len(theirs(text, add_special_tokens=False)["input_ids"])


def test_token_count_without_a_template_is_the_sum_of_the_texts(directory: Path, tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_bytes((directory / "tokenizer.json").read_bytes())
    counter = HuggingFaceTokenCounter(file)

    def texts(*given: str) -> int:
        return sum(map(counter.count_text, given))

    assert counter.count([]) == 0
    assert counter.count([{"role": "user", "name": "Bob", "content": "Hello"}]) == texts("user", "Bob", "Hello")
    assert counter.count([{"content": "Hello"}], TOOLS) == texts("Hello", *map(as_json, TOOLS))
    assert counter.count([{"role": "user", "content": [PICTURE]}]) == texts("user") + estimate_media_tokens(PICTURE)


@pytest.mark.slow
def test_msg_objects_count_as_the_equal_dicts_in_transformers() -> None:
    counter = real("qwen3")
    conversation = [
        Msg("system", "Be kind.", "system"),
        Msg("user", "W?", "user"),
        Msg("assistant", [TextBlock("So"), ToolUseBlock("1", "get_weather", {"city": "Köln"})], "assistant"),
        Msg("tool", [ToolResultBlock("1", "get_weather", "rain")], "tool"),
    ]
    as_dicts: list[dict[str, Any]] = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "W?"},
        {"role": "assistant", "content": "So", "tool_calls": [call(1, {"city": "Köln"})]},
        result(1, "rain"),
    ]
    expected = reference_count(transformers_own(), as_dicts, TOOLS, chat_template=templates()["qwen3"])
    assert counter.count(conversation, TOOLS) == counter.count(as_dicts, TOOLS) == expected


LOOK: dict[str, Any] = {"type": "text", "text": "Look"}
IMAGE: dict[str, Any] = {"type": "image"}
DATA = "A" * 5000
CLAUDES: dict[str, Any] = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}}
GEMINIS: dict[str, Any] = {"inline_data": {"mime_type": "image/png", "data": DATA}}
SOUND: dict[str, Any] = {"type": "input_audio", "input_audio": {"data": DATA, "format": "mp3"}}


@pytest.mark.parametrize("kind", ["video", "audio", "image"])
def test_media_without_an_openai_form_are_counted(kind: str) -> None:
    made = {"video": VideoBlock, "audio": AudioBlock, "image": ImageBlock}[kind](URLSource("https://x/a"))
    counted = make_counter("{{ messages[0].content }}").count([Msg("user", [TextBlock("abc"), made], "user")])
    assert counted == len("abc") + estimate_media_tokens({"type": kind})


CALLED = call(1, json.dumps(ARGUMENTS))["function"]
THOUGHT: dict[str, Any] = {"type": "thinking", "thinking": "Hm"}
GEMINIS_CALL = {"function_call": {"name": "now", "args": {"city": "Köln"}}}
CLAUDES_CALL = {"type": "tool_use", "id": "1", "name": "now", "input": {"city": "Köln"}}
CLAUDES_RESULT = {"type": "tool_result", "tool_use_id": "1", "content": "Hello there"}
# Messages of many forms, and the messages that a template without content parts gets.
OTHER_FORMS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"role": "model", "parts": [{"text": "Hello there"}]}, {"role": "assistant", "content": "Hello there"}),
    ({"role": "model", "parts": [GEMINIS_CALL]}, {"role": "assistant", "content": as_json(GEMINIS_CALL)}),
    ({"role": "function", "parts": [{"text": "a"}, {"text": "b"}]}, {"role": "tool", "content": "a\nb"}),
    ({"role": "function", "content": "Hello there"}, {"role": "function", "content": "Hello there"}),
    ({"role": "user", "content": [CLAUDES_RESULT]}, {"role": "user", "content": "Hello there"}),
    ({"role": "assistant", "content": [CLAUDES_CALL]}, {"role": "assistant", "content": as_json(CLAUDES_CALL)}),
    (
        {"role": "assistant", "content": None, "function_call": CALLED},
        {"role": "assistant", "tool_calls": [{"type": "function", "function": CALLED | {"arguments": ARGUMENTS}}]},
    ),
    (
        {"type": "function_call", "call_id": "1", "name": "now", "arguments": "{}"},
        {"role": "assistant", "content": "now\n{}"},
    ),
    ({"type": "function_call_output", "output": "Hello there"}, {"role": "tool", "content": "Hello there"}),
    (
        {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "Hello there"}]},
        {"role": "assistant", "content": "Hello there"},
    ),
    ({"content": "Hello there"}, {"role": "user", "content": "Hello there"}),
    ({"role": "wizard", "content": "Hello there"}, {"role": "wizard", "content": "Hello there"}),
    ({"role": "user", "content": {"a": "Hello there"}}, {"role": "user", "content": {"a": "Hello there"}}),
    ({"role": "user", "content": "Hello there", "images": []}, {"role": "user", "content": "Hello there"}),
    ({"role": "user", "content": ["Hello there", LOOK, THOUGHT]}, {"role": "user", "content": "Hello there\nLook\nHm"}),
    ({}, {"role": "user", "content": ""}),
]


@pytest.mark.parametrize(("message", "shown"), OTHER_FORMS, ids=lambda value: str(value)[:60])
def test_messages_of_every_form_are_rendered_as_openai_messages(message: dict[str, Any], shown: dict[str, Any]) -> None:
    assert make_counter("{{ messages|tojson }}").count([message]) == len(as_json([shown]).encode())


@pytest.mark.parametrize(
    ("message", "parts", "medium"),
    [
        ({"role": "user", "content": "Look"}, [LOOK], None),
        ({"role": "user", "content": ["Look", LOOK | {"x": 1}]}, [LOOK, LOOK | {"x": 1}], None),
        ({"role": "user", "content": [THOUGHT, {"type": "input_text", "text": "Look"}]}, [THOUGHT, LOOK], None),
        ({"role": "user", "content": [CLAUDES_RESULT]}, [LOOK | {"text": "Hello there"}], None),
        ({"role": "user", "parts": [{"text": "Look"}]}, [LOOK], None),
        ({"role": "user", "content": []}, [], None),
        # Media count by their kind, never by their base64 text.
        ({"role": "user", "content": [LOOK, PICTURE]}, [LOOK, IMAGE], PICTURE),
        ({"role": "user", "content": [CLAUDES, LOOK]}, [IMAGE, LOOK], CLAUDES),
        ({"role": "user", "content": [SOUND]}, [{"type": "audio"}], SOUND),
        ({"role": "user", "content": "Look", "images": [DATA]}, [LOOK], {"images": [DATA]}),
        ({"role": "user", "parts": [{"text": "Look"}, GEMINIS]}, [LOOK], GEMINIS),
        ({"role": "user", "content": [CLAUDES_RESULT | {"content": [LOOK, CLAUDES]}]}, [LOOK, IMAGE], CLAUDES),
    ],
    ids=lambda value: str(value)[:60],
)
def test_template_that_renders_parts_gets_content_parts(message: Any, parts: list[dict[str, Any]], medium: Any) -> None:
    loop = "{% for part in m.content %}{% for k, v in part.items() %}({{ k }}: {{ v }}){% endfor %}{% endfor %}"
    shown = "".join(f"({key}: {value})" for part in parts for key, value in part.items())
    media = 0 if medium is None else estimate_media_tokens(medium)
    assert make_counter(f"{{% for m in messages %}}{loop}{{% endfor %}}").count([message]) == len(shown) + media
    texts = "".join(part["text"] for part in parts if "text" in part)
    assert medium is None or make_counter("{{ messages[0].content }}").count([message]) == len(texts) + media


TURN = "<{{ m.role }}>{{ m.content }};"
LAST = "{{ tools|tojson if tools }}{{ 'go' if add_generation_prompt }}"
LOOP = f"(s){{% for m in messages %}}{TURN}{{% endfor %}}{LAST}"
BYE_FIRST = "messages[0].content == 'Bye!'"


def refusing(condition: str, loop: str = LOOP) -> str:
    return f"{{{{ raise_exception('no') if {condition} }}}}{loop}"


REFUSING = refusing("messages[0].role == 'system' or messages|map(attribute='role')|list == ['user', 'user']")
HI, BYE, RULE = USER | {"content": "Hi"}, USER | {"content": "Bye!"}, SYSTEM | {"content": "Rule"}
SPELL = {"role": "wizard", "content": "Abracadabra, abracadabra!"}


@pytest.mark.parametrize(
    ("template", "messages", "tools", "expected"),
    [
        (REFUSING, [HI], None, "(s)<user>Hi;go"),
        # Each message is rendered alone; the text before all messages, and the tools, count once.
        (REFUSING, [HI, BYE], None, "(s)<user>Hi;<user>Bye!;go"),
        (REFUSING, [HI, BYE], TOOLS, f"(s)<user>Hi;<user>Bye!;{as_json(TOOLS)}go"),
        # A system message is refused even alone: its text counts, with the markers of a short user turn.
        (REFUSING, [RULE, HI], None, "(s)<user>xRule;<user>Hi;go"),
        # If no two or three turns can be rendered, the text before all messages is unknown: it counts for each.
        (refusing("messages|length > 1"), [HI, BYE], None, "(s)<user>Hi;(s)<user>Bye!;go"),
        (refusing("messages[2:] or messages[-1].content == 'Bye!'"), [HI, BYE], None, "(s)<user>Hi;(s)<user>x;Bye!go"),
        # The template refuses tools: they count as their texts.
        (refusing("tools"), [HI, BYE], TOOLS, "(s)<user>Hi;<user>Bye!;" + "".join(map(as_json, TOOLS))),
        # A template that omits the text of one role, one that renders nothing if there are tools, and one that renders
        # less of a long chat than of a short one.
        (
            refusing("messages|length > 3", LOOP.replace("{{ m.content }}", "{{ m.content if m.role == 'user' }}")),
            *([HI, SPELL, HI, BYE], None, "(s)<user>Hi;Abracadabra, abracadabra!<user>Hi;<user>Bye!;go"),
        ),
        (refusing(BYE_FIRST, f"{{% if not tools %}}{LOOP}{{% endif %}}"), [BYE], TOOLS, "(s)<user>x;Bye!"),
        (refusing(BYE_FIRST, LOOP.replace("in messages", "in messages[-1:]")), [BYE], None, "(s)<user>x;Bye!go"),
        ("{{ raise_exception('no') }}", [], None, ""),
        ("{{ raise_exception('no') }}", [], TOOLS, "".join(map(as_json, TOOLS))),
        ("{{ raise_exception('no') }}", [HI, BYE | {"name": "Bob"}], None, "HiBye!Bob"),
        # An empty chat counts the text that the template renders for it.
        (LOOP, [], None, "(s)go"),
        (refusing("not messages"), [], None, "(s)go"),
    ],
)
def test_messages_that_the_template_rejects_are_counted_one_by_one(
    template: str, messages: list[dict[str, Any]], tools: Any, expected: str
) -> None:
    assert make_counter(template).count(messages, tools) == len(expected.encode())


def test_values_that_are_not_json_and_invalid_templates_are_refused(directory: Path) -> None:
    counter = HuggingFaceTokenCounter(directory)
    with pytest.raises(FormatError, match="of a message"):
        counter.count([USER | {"tool_calls": [object()]}])
    with pytest.raises(FormatError, match=r"tools\[0\]"):
        counter.count([USER], [{"a": object()}])
    with pytest.raises(TemplateError, match="the chat template, line 1"):
        HuggingFaceTokenCounter(directory, chat_template="{{ x")


def test_pickled_counter_contains_its_path_instead_of_the_tokenizer(directory: Path) -> None:
    counter: TokenCounter = HuggingFaceTokenCounter(directory, chat_template=REFUSING)
    dumped = pickle.dumps(counter)
    assert len(dumped) < 2000
    twin = pickle.loads(dumped)  # noqa: S301 - our own bytes
    assert twin.count([USER, USER], TOOLS) == counter.count([USER, USER], TOOLS)
    assert HuggingFaceTokenCounter.additive is False


def test_missing_or_invalid_tokenizer_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"tokenizer.json does not exist; pass the path of a model's"):
        HuggingFaceTokenCounter(tmp_path)
    with pytest.raises(TokenizerError, match=r"gpt2 does not exist; .*nothing is downloaded"):
        HuggingFaceTokenCounter("gpt2")
    (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")
    with pytest.raises(TokenizerError, match=r"the tokenizers package cannot read .*tokenizer.json: .*; download"):
        HuggingFaceTokenCounter(tmp_path)
    Tokenizer(models.BPE({}, [])).save(str(tmp_path / "tokenizer.json"))
    flags = json.dumps({"added_tokens_decoder": {"0": {"content": "a", "special": 1}}})
    (tmp_path / "tokenizer_config.json").write_text(flags, encoding="utf-8")
    with pytest.raises(TokenizerError, match=r"cannot read .*tokenizer.json: 'int' object is not .* 'bool'; download"):
        HuggingFaceTokenCounter(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("[", encoding="utf-8")
    with pytest.raises(TokenizerError, match=r"tokenizer_config.json is not valid JSON"):
        HuggingFaceTokenCounter(tmp_path)


def test_missing_tokenizers_package_error_names_the_extra(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingExtraError, match=r'install it with: pip install .+\[hf\]"$'):
        HuggingFaceTokenCounter(directory)
