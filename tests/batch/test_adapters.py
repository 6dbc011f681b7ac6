"""Adapters that render tables of other engines: added columns, refused tables, and pickling for workers."""

import json
import pickle
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import pytest

from batch.clusters import expected_lines, make_prompter, plan, rows, weather
from lazyprompt import Budget, CharTokenCounter, ChatPrompter, ChatTemplate, Prompter, Prompty
from lazyprompt.batch.adapters import ArrowLines, columns_map
from lazyprompt.batch.render import RowPlan
from lazyprompt.errors import BatchError

HISTORY = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes?"}]
TEMPLATE = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}\n{% endfor %}<|assistant|>"
FILE = "---\nname: ask\ninputs:\n  q: {type: string, default: Why?}\n---\nsystem:\nBe brief.\n\nuser:\n{{q}}\n"


def shout(given: Any, history: Any, tools: Any, label: Any) -> tuple[Any, Any, Any, Any]:
    return {"q": given["q"].upper()}, history, tools, label


# Makers of new prompters, and the size limits of their pickles: about a quarter more than the size.
PROMPTERS: dict[str, tuple[Callable[[], Prompter | Prompty], int]] = {
    "plain": (lambda: ChatPrompter("Answer {q}"), 1700),
    "tools": (lambda: ChatPrompter("Answer {q}", tools=[weather]), 2300),
    "history": (lambda: ChatPrompter("Answer {q}", history=HISTORY), 2300),
    "family": (lambda: ChatPrompter("Answer {q}").with_markers("qwen2.5"), 2200),
    "hook": (lambda: ChatPrompter("Answer {q}").pre_hook(shout), 1800),
    "budget": (lambda: ChatPrompter("Answer {q}", history=HISTORY, budget=Budget(400, CharTokenCounter())), 3500),
    "chat template": (lambda: ChatPrompter("Answer {q}").with_chat_template(ChatTemplate.load(TEMPLATE)), 2300),
    "file": (lambda: Prompty.loads(FILE), 1300),
    "all": (
        lambda: (
            ChatPrompter("{q}", tools=[weather], history=HISTORY, budget=Budget(4000))
            .with_markers("llama3")
            .pre_hook(shout)
        ),
        4600,
    ),
}
FORMS = ("flat", "openai", "anthropic")


def prompts(prompter: Prompter | Prompty) -> list[object]:
    return [prompter.generate_prompt({"q": "Why?" * 20}, format=form) for form in FORMS]


@pytest.mark.parametrize("name", PROMPTERS)
@pytest.mark.filterwarnings("ignore::lazyprompt.ToolFormWarning")
def test_the_pickle_of_a_prompter_is_small_and_does_not_grow_by_use(name: str) -> None:
    make, most = PROMPTERS[name]
    prompter = make()
    packed = pickle.dumps(prompter)
    assert len(packed) < most
    expected = prompts(prompter)
    assert len(pickle.dumps(prompter)) == len(packed)
    for _ in range(2):
        prompter = pickle.loads(pickle.dumps(prompter))  # noqa: S301 - our own
        assert prompts(prompter) == expected


@pytest.mark.parametrize("name", PROMPTERS)
def test_the_pickle_of_a_plan_is_small_and_does_not_grow_by_use(name: str) -> None:
    """The layout of a prompt file was in the pickle after its first use."""
    make, most = PROMPTERS[name]
    row: dict[str, object] = {"q": "Why?", "id": "a"}
    made = RowPlan.of(make(), "openai-batch", model="gpt-5-mini")
    packed = pickle.dumps(made)
    assert len(packed) < most + 1900
    line = made.line(1, row)
    assert len(pickle.dumps(made)) == len(packed)
    again = pickle.loads(packed)  # noqa: S301 - our own
    assert again.line(1, row) == line
    assert again.settings == made.settings


def columns(count: int) -> dict[str, list[Any]]:
    found = rows(count)
    return {name: [row[name] for row in found] for name in found[0]}


def test_columns_map_returns_line_and_error_columns() -> None:
    given = columns(20)
    assert columns_map(plan())(given) == {"line": expected_lines(20), "error": [None] * 20}
    assert given == columns(20)


def test_columns_without_rows_have_no_lines() -> None:
    assert columns_map(plan())({name: [] for name in columns(1)}) == {"line": [], "error": []}
    assert columns_map(plan())({}, []) == {"line": [], "error": []}


def without_ids(places: Sequence[int] | None) -> dict[str, list[str | None]]:
    given = columns(3)
    del given["id"]
    return columns_map(plan())(given, places)


def test_rows_without_an_id_are_named_by_their_row_number() -> None:
    lines = without_ids([7, 8, 9])["line"]
    assert [json.loads(str(line))["custom_id"] for line in lines] == ["row-8", "row-9", "row-10"]


def test_rows_without_ids_and_row_numbers_are_refused() -> None:
    with pytest.raises(
        BatchError, match=r"the table has no column 'id'; openai-batch requires a name for each row.*no row numbers"
    ):
        without_ids(None)


def test_a_missing_id_is_an_error_of_its_row_only() -> None:
    given = columns(4)
    given["id"][1] = None
    given["id"][2] = float("nan")
    made = columns_map(plan())(given)
    assert [line is None for line in made["line"]] == [False, True, True, False]
    assert made["error"] == [None, *["column 'id' has no value; each row needs a name"] * 2, None]


def test_formats_without_row_names_need_no_ids() -> None:
    given = {"q": ["Why?"], "label": ["So."]}
    made = columns_map(RowPlan.of(ChatPrompter("{q}"), "train-alpaca"))(given)
    assert made["error"] == [None]


def test_errors_have_row_numbers_only_if_row_numbers_are_passed() -> None:
    given = columns(3)
    given["question"][1] = None
    assert columns_map(plan())(given)["error"][1] == "column 'question' has no value"
    assert columns_map(plan())(given, [5, 6, 7])["error"][1] == "row 7: column 'question' has no value"


def test_a_table_with_an_error_column_is_refused() -> None:
    with pytest.raises(
        BatchError, match="the table already has a column named 'error', but rendering adds a column with this name"
    ):
        columns_map(plan())(columns(1) | {"error": [None]})


@pytest.mark.parametrize("kind", ["Table", "RecordBatch"])
def test_arrow_tables_get_line_and_error_columns(kind: str) -> None:
    arrow = import_module("pyarrow")
    table = getattr(arrow, kind).from_pylist(rows(20))
    made = pickle.loads(pickle.dumps(ArrowLines(plan())))(table)  # noqa: S301 - our own
    assert type(made) is type(table)
    assert made.schema.names == [*table.schema.names, "line", "error"]
    assert made.column("line").to_pylist() == expected_lines(20)
    assert made.column("beside").to_pylist()[:2] == [None, 1]


def test_null_keys_that_arrow_adds_to_messages_are_ignored() -> None:
    # Arrow gives each message all keys that any message has.
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
    history = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
    ]
    row = {"id": "a", "question": "Why?", "language": "French", "history": history}
    table = import_module("pyarrow").Table.from_pylist([row])
    assert table.column("history")[0].as_py()[0].keys() == {"role", "content", "tool_calls", "tool_call_id"}
    assert ArrowLines(plan())(table).column("line").to_pylist() == [plan().line(1, row)[:-1].decode()]


def test_ray_map_returns_the_arguments_of_map_batches() -> None:
    given = make_prompter().ray_map(format="openai-batch", model="gpt-5-mini")
    assert given["batch_format"] == "pyarrow"
    table = import_module("pyarrow").Table.from_pylist(rows(5))
    assert given["fn"](*given["fn_constructor_args"])(table).column("line").to_pylist() == expected_lines(5)


@pytest.mark.slow
def test_datasets_map_numbers_rows_across_batches_and_has_a_stable_fingerprint() -> None:
    datasets = import_module("datasets")
    data = datasets.Dataset.from_list([{"question": f"Why {at}?", "language": "French"} for at in range(6)])
    lines = columns_map(plan())
    named = datasets.fingerprint.Hasher.hash(lines)
    made = data.map(lines, batched=True, with_indices=True, batch_size=2)
    assert [json.loads(line)["custom_id"] for line in made["line"]] == [f"row-{at}" for at in range(1, 7)]
    # By this hash, datasets finds cached results.
    assert datasets.fingerprint.Hasher.hash(lines) == named
