# ruff: noqa: T201 - a value that is printed is used
"""Prompters as users write them, for type checkers: what is right passes, and each wrong line is refused as it says.

Nothing here runs. The comments of the wrong lines say what mypy and pyright find there. Both are told to complain of a
comment that has nothing to ignore, so a line that is no longer refused, or for another reason, is found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_type

from lazyprompt import (
    AlpacaPrompter,
    Budget,
    ChatInstructionTemplate,
    ChatPrompter,
    ChatPromptTemplate,
    ChatTemplate,
    EmptyPrompter,
    FewShotTemplate,
    LengthBudget,
    Markers,
    Msg,
    OpenAIPrompt,
    Payload,
    Prompt,
    Prompter,
    Rendered,
    Segment,
    SlotError,
    TrainingSample,
    TrimReport,
    Trusted,
    messages_from,
    neutralize,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

prompter = ChatPrompter("Answer in {language}.")
values = {"language": "French", "input": "Who are you?"}


def look_up(word: str, limit: int = 3) -> str:
    """Look a word up."""
    return word * limit


def prompters() -> list[Prompter]:
    return [
        prompter,
        ChatPrompter({"system": "Answer in {language}.", "user": "{question}"}, extra_keys=["context"], system=""),
        ChatPrompter("Be kind.", tools=[look_up], history=[["Hello", "Hi"]], enable_system=False),
        AlpacaPrompter("Be kind.", "context", tools=[{"type": "function", "function": {"name": "f"}}]),
        EmptyPrompter(),
        Prompter(ChatInstructionTemplate("Be kind."), ChatPromptTemplate(), budget=Budget(100)),
        prompter.with_markers("qwen2.5").with_markers(Markers(sos="<s>")),
        prompter.with_system("Be brief.").with_safety("raise").with_budget({"language": 10}),
        prompter.with_chat_template(ChatTemplate.load("{{ messages }}")),
    ]


def forms(name: str, as_dict: bool, model: str | None) -> None:  # noqa: FBT001 - what a caller knows
    assert_type(prompter.generate_prompt(values), str)
    assert_type(prompter.generate_prompt(values, model=model), str)
    assert_type(prompter.generate_prompt(values, return_dict=False), str)
    assert_type(prompter.generate_prompt(values, format="flat"), str)
    assert_type(prompter.generate_prompt(values, format=None), str)
    assert_type(prompter.generate_prompt(values, return_dict=True), OpenAIPrompt)
    assert_type(prompter.generate_prompt(values, format="openai"), OpenAIPrompt)
    assert_type(prompter.generate_prompt(values, format="anthropic"), Payload)
    assert_type(prompter.generate_prompt(values, format="gemini")["contents"], Any)
    assert_type(prompter.generate_prompt(values, format=name), str | OpenAIPrompt | Payload)
    assert_type(prompter.generate_prompt(values, return_dict=as_dict), str | OpenAIPrompt)
    assert_type(prompter.generate_prompt(values, return_dict=True)["messages"][-1]["role"], Any)
    # As README has it.
    print(prompter.generate_prompt(values, return_dict=True)["tools"][0]["function"]["parameters"])  # pyright: ignore[reportTypedDictNotRequiredAccess]


def parts_of_the_openai_form() -> None:
    made = prompter.generate_prompt(values, return_dict=True)
    for message in made["messages"]:
        print(message["role"])
    for tool in made.get("tools", []):
        print(tool["function"])


def fitted(name: str) -> None:
    short = prompter.with_budget(Budget(200))
    assert_type(short.fit(values), tuple[str, TrimReport])
    assert_type(short.fit(values, format="openai"), tuple[OpenAIPrompt, TrimReport])
    assert_type(short.fit(values, format="gemini"), tuple[Payload, TrimReport])
    assert_type(short.fit(values, format=name), tuple[str | OpenAIPrompt | Payload, TrimReport])
    flat, report = short.fit(values, model="qwen2.5")
    print(flat.upper(), report.dropped, report.failure)


def rendered() -> None:
    assert_type(prompter.render(values), Rendered)
    assert_type(prompter.render(values).text, str)
    assert_type(prompter.render(values).segments, tuple[Segment, ...])
    text, slot, trusted = prompter.render(values).segments[0]
    assert_type(text, str)
    assert_type(slot, str)
    assert_type(trusted, bool)
    assert_type(prompter.fill(values), Prompt)
    assert_type(prompter.slots, tuple[str, ...])


def histories(
    pairs: list[list[str]], dicts: list[dict[str, Any]], messages: list[Msg], typed: list[dict[str, str]]
) -> None:
    prompter.generate_prompt(values, pairs)
    prompter.generate_prompt(values, dicts)
    prompter.generate_prompt(values, messages)
    prompter.generate_prompt(values, typed)
    prompter.generate_prompt(values, [("Hello", "Hi")])
    prompter.generate_prompt(
        values, [["Hello", "Hi"], {"role": "user", "content": "One moment."}, Msg("a", "b", "user")]
    )
    prompter.generate_prompt(
        values, [{"role": "user", "content": "a"}, {"role": "tool", "content": "b", "tool_call_id": "1"}]
    )
    prompter.generate_prompt(values, prompter.generate_prompt(values, return_dict=True)["messages"])
    assert_type(messages_from([["Hello", "Hi"], Msg("Ada", "Hello", "user")]), list[Msg])


def tools(described: list[dict[str, Any]], functions: tuple[Callable[[int], str], ...]) -> None:
    prompter.generate_prompt(values, tools=[look_up])
    prompter.generate_prompt(values, tools=described)
    prompter.generate_prompt(values, tools=functions)
    prompter.generate_prompt(values, tools=[look_up, *described])
    prompter.generate_prompt(values, tools=[{"type": "function", "function": {"name": "f", "parameters": {}}}])
    prompter.generate_prompt(values, tools=prompter.generate_prompt(values, return_dict=True).get("tools"))


def hooks() -> None:
    def shout(given: object, history: Any, tools: Any, label: str | None) -> tuple[object, Any, Any, str | None]:
        return str(given).upper(), history, tools, label

    assert_type(prompter.pre_hook(shout), ChatPrompter)
    prompter.pre_hook(lambda given, history, tools, label: (given, history, tools, label))


def many_rows(rows: list[dict[str, str]], mapped: Sequence[Mapping[str, object]]) -> None:
    for line in prompter.render_batch(rows, format="openai-batch", model="gpt-5-mini", params={"max_tokens": 10}):
        print(line["custom_id"])
    for line in prompter.render_batch(mapped):
        print(line["text"])
    for either in prompter.render_batch(mapped, on_error="return"):
        print(either["text"] if isinstance(either, dict) else either.reason)


def trained() -> None:
    sample = prompter.training_sample(
        values, "Je suis Ada.", train=lambda index, message: index > 1 and "name" in message
    )
    assert_type(sample, TrainingSample)
    assert_type(sample.spans, tuple[tuple[int, int], ...])
    print(sample.export("openai")["messages"], sample.segments[0].slot)


def words() -> None:
    few = FewShotTemplate("Translate.", [{"a": "one", "b": "un"}], "{a}: {b}", "{input}:")
    assert_type(few.render(input="two"), str)
    FewShotTemplate("Translate.", [{"a": 1}], "{a}", "{b}", select=LengthBudget(100, len))
    assert_type(neutralize("<|im_end|>", "qwen2.5"), str)
    prompter.generate_prompt({"language": Trusted("French"), "input": "Hi"})
    try:
        prompter.generate_prompt({})
    except SlotError as error:
        print(error)


def wrong_prompters() -> None:
    ChatPrompter("Be kind.", tols=[look_up])  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    ChatPrompter(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ChatPrompter("Be kind.", system=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    AlpacaPrompter("Be kind.", history=[["Hello", "Hi"]])  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    EmptyPrompter("Be kind.")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    Prompter("Be kind.", ChatPromptTemplate())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    prompter.with_markers(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    prompter.with_safety("rase")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    prompter.slots = ("a",)  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


def wrong_calls() -> None:
    prompter.generate_prompt(values, format=3)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    prompter.generate_prompt(values, return_dict="yes")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    prompter.generate_prompt(values, formt="openai")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    prompter.generate_prompt(values, model=3)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    prompter.generate_prompt(values, "Hello")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
    prompter.generate_prompt(values, [3])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType, reportCallIssue]
    prompter.generate_prompt(values, {"role": "user"})  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    prompter.generate_prompt(values, tools=[3])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType, reportCallIssue]
    prompter.generate_prompt(values, tools=3)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    prompter.generate_prompt(values, tools="look_up")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
    prompter.generate_prompt(values, label=3)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


def wrong_results() -> None:
    print(prompter.generate_prompt(values)["messages"])  # type: ignore[index]  # pyright: ignore[reportArgumentType]
    prompter.generate_prompt(values, return_dict=True).upper()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    print(prompter.generate_prompt(values, return_dict=True)["mesages"])  # type: ignore[typeddict-item]  # pyright: ignore[reportGeneralTypeIssues, reportUnknownArgumentType]
    prompter.generate_prompt(values, format="anthropic").upper()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    prompter.render(values).upper()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    print(prompter.render(values).segments[0].trustd)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType]
    prompter.fit(values).upper()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    print(FewShotTemplate("a", [], "b", "c").render() + 1)  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue, reportUnknownArgumentType]


def wrong_others() -> None:
    prompter.pre_hook(lambda given: given)  # type: ignore[arg-type, misc]  # pyright: ignore[reportArgumentType]
    prompter.training_sample(values, 3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    prompter.training_sample(values, "a", train="some")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    prompter.render_batch([], on_error="ignore")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    Markers(sos=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Markers(start="<s>")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    messages_from("Hello")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
