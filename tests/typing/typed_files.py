# ruff: noqa: T201 - a value that is printed is used
"""Prompts in files and models' own templates as users write them; see typed_prompts.py."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_type

from lazyprompt import (
    ChatPrompter,
    ChatTemplate,
    Converted,
    Finding,
    Markers,
    Msg,
    OpenAIPrompt,
    Payload,
    Prompter,
    PromptFile,
    PromptFileError,
    PromptLibrary,
    Prompty,
    Rendered,
    check,
    convert,
)

if TYPE_CHECKING:
    from lazyprompt import PromptDiff

prompt = Prompty.load("a.prompty", params={"tone": "dry"}, allowed_roots=[Path("shared")])
given = {"city": "Leeds", "question": "Open?"}


def loaded(text: str) -> list[Prompty]:
    return [prompt, Prompty.loads(text, name="a.prompty"), Prompty.load(Path("a.prompty"), dialect="v2")]


async def loaded_in_a_loop() -> None:
    assert_type(await Prompty.aload("a.prompty"), Prompty)


def forms(name: str) -> None:
    assert_type(prompt.generate_prompt(given), str)
    assert_type(prompt.generate_prompt(given, model="qwen2.5"), str)
    assert_type(prompt.generate_prompt(given, return_dict=True), Payload)
    assert_type(prompt.generate_prompt(given, format="openai"), Payload)
    assert_type(prompt.generate_prompt(given, format="neutral"), OpenAIPrompt)
    assert_type(prompt.generate_prompt(given, format="anthropic"), Payload)
    assert_type(prompt.generate_prompt(given, format=name), str | OpenAIPrompt | Payload)
    assert_type(prompt.generate_prompt(given, format="gemini")["contents"], Any)
    assert_type(prompt.messages(given), list[Msg])
    assert_type(prompt.render(given), str)
    assert_type(prompt.request(given, provider="openai"), Payload)
    assert_type(prompt.prompter.render(given), Rendered)


def fields() -> None:
    assert_type(prompt.name, str | None)
    for each in prompt.inputs:
        print(each.name, each.kind)
    assert_type(prompt.with_fields(name="b"), Prompty)
    assert_type(prompt.dumps("v2"), str)
    assert_type(Prompty.from_prompter(ChatPrompter("Be kind."), model="gpt-5"), Prompty)
    prompter: Prompter = PromptFile.load("a.yaml").prompter
    print(prompter.slots)


def library() -> None:
    prompts = PromptLibrary("prompts", layers=["own"])
    assert_type(prompts.get("support/refund", lang="zh-CN", version="^1.2"), Prompty)
    assert_type(prompts.prompter("support/refund"), Prompter)
    assert_type(prompts.keys(), tuple[str, ...])
    found: PromptDiff = prompts.diff("support/refund", "1.0", "2.0")
    print(found)


def checked() -> None:
    for finding in check("a.prompty"):
        assert_type(finding, Finding)
        print(finding.code, finding.line)
    assert_type(convert(prompt, "v2"), Converted)
    try:
        Prompty.loads("")
    except PromptFileError as error:
        print(error)


def templates() -> None:
    template = ChatTemplate.load(Path("models/qwen3"), bos_token="<s>")  # noqa: S106 - a token of a model
    assert_type(template.render([{"role": "user", "content": "Hello"}], add_generation_prompt=True), Rendered)
    template.render([{"role": "user", "content": [{"type": "text", "text": "Hello"}]}], tools=[{"name": "f"}])
    assert_type(template.markers, Markers)


def wrong_files() -> None:
    Prompty.load(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Prompty.load("a.prompty", parms={})  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    Prompty.loads(Path("a.prompty"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Prompty.load("a.prompty", undefined="ignore")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    prompt.generate_prompt(given, format=3)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    prompt.generate_prompt(given, modl="qwen2.5")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    print(prompt.generate_prompt(given)["messages"])  # type: ignore[index]  # pyright: ignore[reportArgumentType]
    prompt.generate_prompt(given, format="anthropic").upper()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    print(prompt.messages(given)[0].txt)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType]
    prompt.with_fields(nme="b")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    prompt.name = "b"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    prompt.spec = None  # type: ignore[assignment, misc]  # pyright: ignore[reportAttributeAccessIssue]


def wrong_libraries() -> None:
    PromptLibrary(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    PromptLibrary("prompts").get("a", language="fr")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    PromptLibrary("prompts").get(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    check(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ChatTemplate.load(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ChatTemplate.load("{{ a }}").render("Hello")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
