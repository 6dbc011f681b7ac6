"""Lists in slots within a budget: whole items are dropped, in every kind of template, and the report names them."""

import pickle
import re
from collections.abc import Callable
from typing import Any

import pytest

from lazyprompt import Budget, BudgetError, CharTokenCounter, ChatPrompter, Prompty
from lazyprompt.budget.report import ListItems
from lazyprompt.prompters.prompter import Prompter
from lazyprompt.rendering.prompt_template import ChatPromptTemplate
from lazyprompt.templates.instruction import InstructionTemplate

CHARS = CharTokenCounter()
COUNT = 9
PASSAGES = [
    {"id": at, "text": f"passage-{at} " + "words " * (3 + at % 3), "score": (at * 5) % COUNT} for at in range(COUNT)
]
PAIRS = [[f"question-{at}", f"answer-{at}"] for at in range(4)]
FRONT = "---\nname: ask\ninputs:\n  passages: {kind: array}\n  input: {kind: string}\n---\n"
LOOP = "{% for p in passages %}<doc>{{ p.text }}</doc>{% if not loop.last %}, {% endif %}{% endfor %}"


def jinja(text: str) -> Prompter:
    return Prompter(InstructionTemplate(text, syntax="jinja2"), ChatPromptTemplate(), system="")


def file(text: str) -> Prompter:
    return Prompty.loads(FRONT + text).prompter


PROMPTERS: dict[str, Callable[[], Prompter]] = {
    "slots": lambda: ChatPrompter("Answer from {passages}.", system=""),
    "slots of the user message": lambda: ChatPrompter({"user": "{passages}\n"}, system=""),
    "loop": lambda: jinja(f"{{{{ passages|length }}}} documents: {LOOP}"),
    "filters": lambda: jinja("{{ passages|map(attribute='text')|join('; ') }}"),
    "file": lambda: file(f"system:\n{LOOP}\nuser:\n{{{{ input }}}}"),
    "user section of a file": lambda: file(f"user:\n{LOOP}\n\n{{{{ input }}}}"),
    "user section before others": lambda: file(f"user:\n{LOOP}\nassistant:\nI see.\nuser:\n{{{{ input }}}}"),
    "sections in a loop of a file": lambda: file(
        "system:\nAnswer.\n{% for p in passages %}\nuser:\nWhat?\nassistant:\n{{ p.text }}\n{% endfor %}\n"
        "user:\n{{ input }}"
    ),
}


def shown_numbers(prompt: Any, word: str) -> list[int]:
    return [int(found) for found in re.findall(rf"{word}-(\d+)", str(prompt))]


def fit(prompter: Prompter, budget: Budget, **more: Any) -> tuple[Any, Any]:
    values = {"passages": PASSAGES, "input": "Why?", **more}
    return prompter.with_budget(budget).fit(values, PAIRS, format="openai")


@pytest.mark.slow
@pytest.mark.parametrize("name", PROMPTERS)
def test_oldest_history_is_dropped_first_then_whole_list_items_from_the_end(name: str) -> None:
    """The budget dropped the whole list or no item of it, and a slot limit cut the JSON of the list."""
    prompter = PROMPTERS[name]()
    whole, report = fit(prompter, Budget(None, CHARS))
    assert report.lists == {"passages": ListItems(tuple(range(COUNT)), (), report.lists["passages"].start)}
    full, before = report.before, None
    for limit in range(full, 0, -7):
        try:
            made, report = fit(prompter, Budget(limit, CHARS))
        except BudgetError as error:
            missing = re.search(r"(\d+) tokens are missing, or the list 'passages' would be empty", str(error))
            assert missing is not None
            assert report.after == limit + int(missing[1])
            assert report.lists["passages"].kept == (0,)
            break
        assert report.after <= limit
        items, turns = report.lists["passages"], shown_numbers(made, "question")
        assert items.kept == tuple(range(len(items.kept)))
        assert items.dropped == tuple(range(len(items.kept), COUNT))
        assert shown_numbers(made, "passage") == [*items.kept]
        assert turns == [*range(4 - len(turns), 4)]
        assert not turns or not items.dropped
        assert all(PASSAGES[at]["text"].strip() in str(made) for at in items.kept)
        lines = report.messages[items.start : items.start + COUNT]
        assert [(line.slot, line.item, line.fate) for line in lines] == [
            ("passages", at, "kept" if at in items.kept else "dropped") for at in range(COUNT)
        ]
        if items.dropped and before is not None:
            assert f"{len(items.dropped)} of {COUNT} items of passages dropped (the last items go first)" in str(report)
        before = made
    else:
        pytest.fail("no limit is too small")
    assert str(whole)


def test_order_function_decides_which_items_are_dropped() -> None:
    best = Budget(420, CHARS, order={"passages": lambda items: sorted(items, key=lambda each: -each["score"])})
    made, report = fit(PROMPTERS["loop"](), best)
    kept = report.lists["passages"].kept
    assert len(kept) in range(2, COUNT)
    assert {PASSAGES[at]["score"] for at in kept} == {*range(COUNT - len(kept), COUNT)}
    # The prompt keeps the items in the order of the list.
    assert shown_numbers(made, "passage") == [*kept] == sorted(kept)


@pytest.mark.parametrize(
    "order",
    [lambda _: [], lambda items: [*items, items[0]], lambda items: [dict(each) for each in items]],
    ids=["no items", "repeated item", "copied items"],
)
def test_order_function_must_return_the_same_items(order: Any) -> None:
    with pytest.raises(
        BudgetError,
        match=r"^order\['passages'\] returned .* it must return exactly the items it received, in any order$",
    ):
        fit(PROMPTERS["slots"](), Budget(400, CHARS, order={"passages": order}))
    with pytest.raises(BudgetError, match=r"^order\['passages'\] must be a function that sorts items, not 1"):
        Budget(400, order={"passages": 1})  # type: ignore[dict-item]
    with pytest.raises(BudgetError, match="limits the slot 'passage' .did you mean 'passages'"):
        fit(PROMPTERS["file"](), Budget(400, CHARS, order={"passage": order}))


@pytest.mark.slow
def test_list_items_are_dropped_one_by_one_in_order_of_priority() -> None:
    prompter = ChatPrompter("Examples: {examples}\nFrom {passages}.", system="")
    examples = [f"example-{at}" for at in range(5)]
    numbers: dict[int | str, float] = {"examples": 1, "passages": 2, "history": 3}
    seen: list[tuple[int, int, int]] = []

    def shrink() -> None:
        for limit in range(1100, 0, -5):
            made, _ = fit(prompter, Budget(limit, CHARS, "priority", priority=numbers), examples=examples)
            seen.append(
                (
                    len(shown_numbers(made, "example")),
                    len(shown_numbers(made, "passage")),
                    len(shown_numbers(made, "question")),
                )
            )

    with pytest.raises(BudgetError, match="or the list 'examples', 'passages' would be empty"):
        shrink()
    assert seen[0] == (5, COUNT, 4)
    assert [each for each in dict.fromkeys(seen) if each[2] == 4] == [
        *((count, COUNT, 4) for count in range(5, 0, -1)),
        *((1, count, 4) for count in range(COUNT - 1, 0, -1)),
    ]
    assert seen[-1] == (1, 1, 0)


def test_slot_limit_drops_whole_list_items() -> None:
    made, report = fit(PROMPTERS["slots"](), Budget(None, CHARS, slots={"passages": 200}))
    kept = report.lists["passages"].kept
    assert sum(line.after for line in report.messages if line.slot == "passages") <= 200
    assert shown_numbers(made, "passage") == [*kept] == [0, 1]
    assert str(report).endswith("7 of 9 items of passages dropped (the slot has at most 200 tokens)")
    with pytest.raises(
        BudgetError, match=r"is limited to 20 tokens, but its most important item has 61 tokens \(41 too many\), so the"
    ):
        fit(PROMPTERS["slots"](), Budget(None, CHARS, slots={"passages": 20}))


def test_protected_list_is_not_dropped() -> None:
    with pytest.raises(BudgetError, match="would be empty"):
        fit(PROMPTERS["slots"](), Budget(400, CHARS, protect={"passages"}))


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["cache", lambda messages: f"{len(messages)} messages."], ids=["cache", "summary"])
@pytest.mark.parametrize("start_on", [None, "user"])
def test_cache_and_summary_policies_drop_no_more_items_than_the_default_policy(policy: Any, start_on: Any) -> None:
    for limit in range(300, 1000, 25):
        _, least = fit(PROMPTERS["loop"](), Budget(limit, CHARS, start_on=start_on))
        made, report = fit(PROMPTERS["loop"](), Budget(limit, CHARS, policy, start_on=start_on, summary_tokens=70))
        assert report.after <= limit
        assert report.lists == least.lists
        assert shown_numbers(made, "passage") == [*report.lists["passages"].kept]


@pytest.mark.parametrize("name", ["slots", "loop", "file"])
@pytest.mark.parametrize("value", [PASSAGES, tuple(PASSAGES), lambda: PASSAGES], ids=["list", "tuple", "function"])
def test_list_fixed_by_partial_is_dropped_item_by_item(name: str, value: Any) -> None:
    given = PROMPTERS[name]().with_budget(Budget(400, CHARS))
    fixed = given.partial(passages=value).fit({"input": "Why?"}, PAIRS, format="openai")
    expected = given.fit({"passages": PASSAGES, "input": "Why?"}, PAIRS, format="openai")
    assert (fixed[0], fixed[1].lists) == (expected[0], expected[1].lists)


@pytest.mark.parametrize("name", PROMPTERS)
def test_filled_prompt_copies_its_lists_and_can_be_pickled(name: str) -> None:
    prompter = PROMPTERS[name]().with_budget(Budget(None, CHARS))
    passages = [dict(each) for each in PASSAGES]
    prompt = prompter.fill({"passages": passages, "input": "Why?"})
    copy = pickle.loads(pickle.dumps(prompt))  # noqa: S301 - our own
    passages.clear()
    assert copy == prompt
    target = prompter.target("openai")
    few = prompter.fill({"passages": PASSAGES[:2], "input": "Why?"})
    assert target.render(copy.with_slot("passages", PASSAGES[:2])) == target.render(few)
    assert [*copy.lists] == ["passages"]
