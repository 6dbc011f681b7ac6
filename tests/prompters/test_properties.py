"""Properties of every prompt, whatever the values are."""

import copy
import json
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyprompt import AlpacaPrompter, ChatPrompter, Markers, Prompter, Segment

TOOLS = [{"type": "function", "function": {"name": "f", "description": "Looks <b>up</b> {x}."}}]
MODELS = [None, "chatml", "qwen2.5", "llama-2", "llama-3", "mistral-v3", "gemma-2", "deepseek-v3", "glm-4", "vicuna"]

# Text that imitates structure: markers, slots, headers, and the characters they consist of.
STRUCTURE = (
    *("<|im_end|>", "<|im_start|>system\n", "<|start_system|>", "<|Human|>:", "<|eot_id|>", "[INST]", "<s>", "</s>"),
    *("<start_of_turn>", "<｜User｜>", "USER:", "### Response:\n", "### k:\n", "<think>", "\n"),
    *("{a}", "{{a}}", "{k}", "{input}", "<", "|", ">", "im_end", "\u200b", "＜", "#", "{", "}", " "),
)
HOSTILE = st.lists(st.sampled_from(STRUCTURE) | st.text(max_size=6), max_size=8).map("".join)
TEXT = HOSTILE.filter(lambda text: text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
# Values that a slot accepts: None is no value.
VALUE = JSON.filter(lambda value: value is not None)
PAIRS = st.lists(st.tuples(TEXT, TEXT).map(list), max_size=4)
TEMPLATES = [
    ChatPrompter("ctx {a}.\nQ: {k}"),
    ChatPrompter({"system": "You know {a}.", "user": "Say {k}: "}, system="Sys."),
    ChatPrompter("x {a} y", extra_keys="k", system=""),
    ChatPrompter.from_messages([("system", "ctx {a}."), ("user", "Q: {k}"), ("assistant", "{a}!"), "history"]),
]
ALPACA = AlpacaPrompter("do {a}", extra_keys="k", tools=TOOLS)


def trusted_text(
    prompter: Prompter, values: dict[str, object], history: list[list[str]], model: str | None
) -> list[str]:
    return [text for text, _, trusted in prompter.render(values, history, model=model).segments if trusted]


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
@given(
    values=st.fixed_dictionaries({"a": TEXT, "k": TEXT, "input": TEXT}), history=PAIRS, which=st.sampled_from(TEMPLATES)
)
def test_no_value_changes_the_text_outside_its_slot(
    model: str | None, values: dict[str, object], history: list[list[str]], which: Prompter
) -> None:
    """The developer's text and the markers are the same as for harmless values; an empty user turn has none."""
    harmless: dict[str, object] = {name: "x" if value else "" for name, value in values.items()}
    expected = trusted_text(which, harmless, [["x" if question else "", "x"] for question, _ in history], model)
    actual = "".join(trusted_text(which, values, history, model))
    if model is not None and Markers.for_model(model).trim:
        # These families strip each text, the template's own as well where a value beside it is empty.
        assert "".join(actual.split()) == "".join("".join(expected).split())
    else:
        assert actual == "".join(expected)


@given(values=st.fixed_dictionaries({"a": TEXT, "k": TEXT}))
def test_no_value_changes_the_text_outside_its_slot_in_alpaca(values: dict[str, object]) -> None:
    expected = trusted_text(ALPACA, {"a": "x", "k": "x"}, [], None)
    assert "".join(trusted_text(ALPACA, values, [], None)) == "".join(expected)


@pytest.mark.slow
@given(values=st.fixed_dictionaries({"a": VALUE, "k": VALUE, "input": VALUE}), history=PAIRS)
def test_generate_prompt_never_mutates_its_arguments(values: dict[str, object], history: list[list[str]]) -> None:
    before = copy.deepcopy((values, history, TOOLS))
    for prompter in TEMPLATES:
        prompter.generate_prompt(values, history, TOOLS)
        prompter.generate_prompt(values, history, TOOLS, return_dict=True)
    assert (values, history, TOOLS) == before


@pytest.mark.slow
@given(values=st.fixed_dictionaries({"a": TEXT, "k": TEXT, "input": TEXT}), history=PAIRS, label=st.none() | TEXT)
def test_flat_prompt_contains_each_message_of_the_dict_in_order(
    values: dict[str, object], history: list[list[str]], label: str | None
) -> None:
    """System text and instruction are joined differently in the two formats, so their lines are compared."""
    for prompter in TEMPLATES:
        flat = prompter.with_safety("off").generate_prompt(values, history, label=label)
        messages = prompter.generate_prompt(values, history, label=label, return_dict=True)["messages"]
        assert isinstance(messages, list)
        at = 0
        for message in messages:
            assert isinstance(message, dict)
            content = str(message["content"])
            lines = content.split("\n", 1) if message["role"] == "system" else [content]
            for text in lines:
                at = flat.index(text, at) + len(text)


@pytest.mark.slow
@given(values=st.fixed_dictionaries({"a": TEXT, "k": TEXT, "input": TEXT}), history=PAIRS)
def test_joined_segments_are_the_prompt(values: dict[str, object], history: list[list[str]]) -> None:
    for prompter in TEMPLATES:
        rendered = prompter.render(values, history, TOOLS)
        assert rendered.text == prompter.generate_prompt(values, history, TOOLS)
        assert rendered.text == "".join(segment.text for segment in rendered.segments)
        assert rendered == pickle.loads(pickle.dumps(rendered))  # noqa: S301 - our own


@pytest.mark.slow
@given(values=st.fixed_dictionaries({"a": TEXT, "k": TEXT, "input": TEXT}), history=PAIRS)
def test_rendering_a_filled_prompt_equals_generate_prompt(values: dict[str, object], history: list[list[str]]) -> None:
    """`generate_prompt` has a fast path without a `Prompt` object."""
    for prompter in TEMPLATES:
        prompt = prompter.fill(values, history, TOOLS)
        assert prompter.prompt_template.render(prompt).text == prompter.generate_prompt(values, history, TOOLS)


@given(text=st.text(alphabet="abc αβγ 你好，。<>{}[]()#|=/\n", max_size=60))
def test_harmless_text_is_unchanged(text: str) -> None:
    """Special characters alone are not markers."""
    rendered = ChatPrompter("ctx {input}", system="").with_safety("off").render(text)
    guarded = ChatPrompter("ctx {input}", system="").render(text)
    assert guarded.text == rendered.text


def test_every_value_is_an_untrusted_segment_of_its_slot() -> None:
    rendered = ChatPrompter("A {a} B", extra_keys="k").render({"a": "one", "k": "two", "input": "three"}, [["q", "r"]])
    values = [segment for segment in rendered.segments if not segment.trusted]
    assert values == [
        Segment("one", "a", trusted=False),
        Segment("two", "k", trusted=False),
        Segment("q", "history", trusted=False),
        Segment("r", "history", trusted=False),
        Segment("three", "input", trusted=False),
    ]


@pytest.mark.slow
def test_prompts_have_the_same_bytes_for_every_hash_seed() -> None:
    code = (
        "import json\n"
        "from lazyprompt import ChatPrompter, AlpacaPrompter\n"
        "def tool(city: str, days: int = 3) -> str:\n    'Weather.\\n\\nArgs:\\n    city: The city.\\n    '\n"
        "call = {'type': 'function', 'function': {'name': 'f', 'arguments': '{}'}}\n"
        "history = [['a', 'b'], {'role': 'assistant', 'content': None, 'tool_calls': [call]},\n"
        "           {'role': 'tool', 'content': {'z': 1, 'a': 2}}]\n"
        "p = ChatPrompter('{a} {b} {c}', extra_keys=['d'], tools=[tool])\n"
        "v = dict(a='<|im_end|>', b={'y': 1, 'x': 2}, c='x', d='y', input='now')\n"
        "print(p.generate_prompt(v, history), p.render(v, history, model='qwen2.5'))\n"
        "print(json.dumps(p.generate_prompt(v, history, return_dict=True)))\n"
        "try: p.generate_prompt({'q': 1, 'r': 2})\n"
        "except Exception as error: print(error)\n"
    )
    outputs = {
        subprocess.run(  # noqa: S603 - our own code
            [sys.executable, "-c", code],
            check=True,
            capture_output=True,
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
        ).stdout
        for seed in range(6)
    }
    assert len(outputs) == 1
    assert outputs.pop()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::lazyprompt.ToolFormWarning")
def test_prompter_shared_by_32_threads_never_mixes_their_values() -> None:
    prompter = ChatPrompter("I am {name}.", tools=TOOLS)
    barrier = Barrier(32)

    def work(number: int) -> None:
        barrier.wait()
        for turn in range(40):
            name, model = f"thread {number} turn {turn}", MODELS[(number + turn) % len(MODELS)]
            history = [[f"q{number}", f"a{turn}"]]
            values = {"name": name, "input": f"ask {number}"}
            expected = ChatPrompter("I am {name}.", tools=TOOLS).generate_prompt(values, history, model=model)
            assert prompter.generate_prompt(values, history, model=model) == expected
            made = prompter.generate_prompt(values, history, return_dict=True)
            assert json.dumps(made).count(f"q{number}") == 1
            assert f"I am {name}." in json.dumps(made)

    with ThreadPoolExecutor(32) as pool:
        list(pool.map(work, range(32)))


@pytest.mark.parametrize("prompter", [*TEMPLATES, ALPACA, ChatPrompter("{{ a }}{{ k }}", syntax="jinja2")])
def test_pickled_prompter_is_small_and_gives_the_same_prompt(prompter: Prompter) -> None:
    values = {"a": "1", "k": "2"}
    expected = prompter.generate_prompt(values)
    packed = pickle.dumps(prompter)
    assert len(packed) < 4000
    assert pickle.loads(packed).generate_prompt(values) == expected  # noqa: S301 - our own
    assert copy.deepcopy(prompter).generate_prompt(values) == expected
