"""History is append-only: sent messages stay the same, and no reasoning signed for another prefix is sent."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from random import Random
from typing import Any, cast

import pytest

from formatters.payloads import judged, reported
from lazyprompt import ApproximateTokenCounter, Budget, ChatFormatter, ChatPrompter, Msg, MultiAgentFormatter, Payload
from lazyprompt._base.roles import Role
from lazyprompt.caching import PrefixChange, check_prefix
from lazyprompt.formatters.formatter import countable
from lazyprompt.formatters.providers import PROVIDERS, profile_of
from support.chats import TOOL, requests_of, synthetic_chat
from support.conversations import Maker

# The slow tests try all chats, the quick tests a quarter of them.
SEEDS = pytest.mark.parametrize("seeds", [range(15), pytest.param(range(15, 60), marks=pytest.mark.slow)], ids=len)
SPEAKERS: dict[str, Role] = {"s": "system", "u": "user", "a": "assistant"}


def messages_of(roles: str) -> list[Msg]:
    """Messages by the first letters of their roles, each with its number."""
    return [Msg(SPEAKERS[role], f"{role}{at}", SPEAKERS[role]) for at, role in enumerate(roles)]


def payload_texts(payload: dict[str, Any]) -> list[str]:
    """The system text and the texts of messages, in order."""
    said = [message["content"] for message in payload["messages"]]
    return [payload.get("system", ""), *said]


@pytest.mark.parametrize(
    ("roles", "expected", "moved"),
    [
        ("suas", ["s0\n\ns3", "u1", "a2"], ["messages[3]"]),
        ("suasu", ["s0", "u1", "a2", "u4", "s3"], ["messages[3]"]),
        ("sus", ["s0", "u1", "s2"], []),
        ("suasua", ["s0", "u1", "a2", "u4", "s3", "a5"], ["messages[3]"]),
        ("usas", ["s3", "u0", "s1", "a2"], ["messages[3]"]),
        ("uassua", ["", "u0", "a1", "u4", "s2\n\ns3", "a5"], ["messages[2]", "messages[3]"]),
        ("ssu", ["s0\n\ns1", "u2"], []),
    ],
)
def test_late_system_text_is_placed_after_the_user_turn(roles: str, expected: list[str], moved: list[str]) -> None:
    """It was moved to the front, which changed the text before all signed reasoning."""
    payload = ChatFormatter("anthropic").format(*messages_of(roles))
    assert payload_texts(payload) == expected
    assert reported(payload, "text", "moved") == moved


@pytest.mark.parametrize(
    ("model", "is_late"),
    [
        (None, True),
        ("claude-opus-4-8-20260528", True),
        ("us.anthropic.claude-sonnet-5", True),
        ("claude-opus-4-7", False),
        ("claude-opus-4-20250514", False),
        ("claude-sonnet-4-6", False),
        ("claude-haiku-4-5", False),
        ("claude-3-5-sonnet-latest", False),
        ("claude-mythos-preview", False),
    ],
)
def test_late_system_text_is_moved_to_the_front_for_older_models(model: str | None, is_late: bool) -> None:  # noqa: FBT001 - pytest hands it in
    formatter = ChatFormatter("anthropic", model=model)
    late, front = ["s0", "u1", "a2", "u4", "s3"], ["s0\n\ns3", "u1", "a2", "u4"]
    assert payload_texts(judged(formatter, *messages_of("suasu"))) == (late if is_late else front)


def changes(formatter: ChatFormatter, chat: list[Msg]) -> Iterator[PrefixChange | None]:
    """The prefix change of each request from the previous request."""
    payloads = [formatter.format(*messages, tools=[TOOL]) for messages in requests_of(chat)]
    return (check_prefix(*pair) for pair in pairwise(payloads))


@pytest.mark.slow
@SEEDS
@pytest.mark.parametrize("late_system", [False, True])
@pytest.mark.parametrize("provider", ["anthropic", "openai-responses"])
def test_each_request_of_a_chat_extends_the_previous_request(provider: str, late_system: bool, seeds: range) -> None:  # noqa: FBT001 - as above
    formatter = ChatFormatter(provider)
    for seed in seeds:
        chat = synthetic_chat(seed, late_system=late_system, provider=provider)
        assert not [change for change in changes(formatter, chat) if change], seed


@pytest.mark.slow
@SEEDS
@pytest.mark.parametrize("provider", ["anthropic", "openai-responses"])
@pytest.mark.parametrize("kind", [ChatFormatter, MultiAgentFormatter])
def test_no_reasoning_signed_for_another_prefix_is_sent(provider: str, kind: type[ChatFormatter], seeds: range) -> None:
    """After system text was moved to the front, the reasoning was still sent, but had been signed without it."""
    formatter = kind(provider, model="claude-sonnet-4-5")
    for seed in seeds:
        chat = synthetic_chat(seed, late_system=True, provider=provider)
        found = [change for change in changes(formatter, chat) if change]
        assert all(change.thoughts == 0 for change in found), seed
        assert all(change.reason.startswith("a rule of the provider: ") for change in found), seed


def test_report_lists_each_reasoning_block_signed_for_another_prefix() -> None:
    chat = synthetic_chat(3, late_system=False)
    late = [*chat, Msg("assistant", "Yes.", "assistant"), Msg("system", "Be brief.", "system"), chat[-1]]
    payload = ChatFormatter("anthropic", model="claude-sonnet-4-5").format(*late, tools=[TOOL])
    thinking = [f"messages[{at}]" for at, message in enumerate(chat) if message.role == "assistant"]
    assert reported(payload, "thinking") == thinking
    assert "signature" not in str(payload)


@pytest.mark.slow
@pytest.mark.parametrize("provider", [name for name in PROVIDERS if name != "ollama-generate"])
def test_each_prefix_change_in_a_random_chat_is_explained(provider: str) -> None:
    """``ollama-generate`` sends all turns as one text, so no prefix is shared."""
    formatter = ChatFormatter(provider)
    for seed in range(100):
        chat = Maker(Random(seed)).conversation()  # noqa: S311 - chance is what is wanted
        ends = [at for at in range(1, len(chat) + 1) if at == len(chat) or chat[at].role == "assistant"]
        asking = [chat[:end] for end in ends if chat[end - 1].role in ("user", "tool")]
        payloads = [formatter.format(*messages) for messages in asking if any(each.text.strip() for each in messages)]
        for before, after in pairwise(payloads):
            change = check_prefix(before, after)
            assert change is None or "the caller" not in change.reason, (seed, str(change))


@pytest.mark.slow
@pytest.mark.parametrize("provider", [name for name in PROVIDERS if name != "ollama-generate"])
def test_formatting_the_messages_of_a_payload_gives_the_same_payload(provider: str) -> None:
    """A name that equals the role is not read as a name in a provider's dicts."""
    formatter = ChatFormatter(provider)
    key = formatter.profile.form.messages_key
    for seed in range(100):
        chat = [each for each in Maker(Random(seed)).conversation() if each.content]  # noqa: S311 - as above
        if not any(message.text.strip() for message in chat):
            continue
        payload = formatter.format(*(message.spoken_by(f"{message.name} S") for message in chat))
        system = payload.get("system", payload.get("system_instruction"))
        first = [] if system is None else [{"role": "system", "content": system}]
        again = formatter.format(first, payload[key])
        assert again == payload, seed
        assert again.report == (), seed


def half_budgets(provider: str, chat: list[Msg]) -> Budget:
    """A budget of half of what a chat costs at its end."""
    payload, counter = ChatFormatter(provider).format(*chat, tools=[TOOL]), ApproximateTokenCounter()
    return Budget(counter.count(*countable(payload, profile_of(provider))) // 2, counter)


def within_formatter(provider: str, chat: list[Msg]) -> list[Payload]:
    formatter = ChatFormatter(provider, budget=half_budgets(provider, chat))
    return [formatter.format(*messages, tools=[TOOL]) for messages in requests_of(chat)]


def within_prompter(provider: str, chat: list[Msg]) -> list[Payload]:
    prompter = ChatPrompter(system=chat[0].text, tools=[TOOL], budget=half_budgets(provider, chat))
    payloads: list[Payload] = []
    for _, *history in requests_of(chat):
        asked = history.pop().text if history[-1].role == "user" else None
        payloads.append(cast("Payload", prompter.generate_prompt(asked, history, format=provider)))
    return payloads


@pytest.mark.slow
@pytest.mark.parametrize("provider", ["anthropic", "openai-responses"])
@pytest.mark.parametrize("within", [within_formatter, within_prompter])
def test_budget_rarely_changes_the_prefix(provider: str, within: Callable[[str, list[Msg]], list[Payload]]) -> None:
    """Messages were dropped at each turn, so 397 of 657 turns sent reasoning signed for another prefix."""
    found: list[PrefixChange | None] = []
    for seed in range(60):
        payloads = within(provider, synthetic_chat(seed, provider=provider))
        found += [check_prefix(*pair) for pair in pairwise(payloads)]
    rewritten = [change for change in found if change]
    assert [change for change in rewritten if change.thoughts] == []
    assert 0 < len(rewritten) <= 0.2 * len(found)
    assert {change.reason for change in rewritten} == {"the budget dropped or cut earlier messages"}


def test_trim_report_contains_the_end_of_the_prefix_and_the_lost_signed_reasoning() -> None:
    chat = synthetic_chat(3)
    payloads = within_formatter("anthropic", chat)
    rewritten = [after.trim for before, after in pairwise(payloads) if check_prefix(before, after)]
    assert rewritten
    assert all(trim is not None and trim.ends_prefix for trim in rewritten)
    trim = next(payload.trim for payload in payloads if payload.trim and payload.trim.void)
    assert f"{len(trim.void)} without their signed thinking, which is void" in str(trim)
