"""Rules of providers' servers beyond types, such as order, names and empty texts; and `BROKEN` payloads.

The rules are the providers' documented ones, and those of chat templates; no live server was asked.
"""

import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import pairwise, takewhile
from typing import Any, TypeAlias

from support.providers.types import Payload, is_base64, is_object

Rule: TypeAlias = Callable[[Payload], None]
_NAME = "[a-zA-Z0-9_-]{1,64}"
_GEMINI_NAME = "[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}"
_SYSTEM = {"system", "developer"}
_GEMINI_DATA = {"text", "inline_data", "file_data", "function_call", "function_response"}


def _require(holds: object, message: str) -> None:
    if not holds:
        raise ValueError(message)


def _rule(holds: Callable[[Payload], object], message: str) -> Rule:
    return lambda payload: _require(holds(payload), message)


def _roles(payload: Payload) -> list[str]:
    return [message["role"] for message in payload["messages"]]


def _spoken(payload: Payload) -> list[str]:
    return [role for role in _roles(payload) if role not in _SYSTEM]


def _begun(message: dict[str, Any]) -> bool:
    """Whether a message is the beginning of an answer."""
    return True in (message.get("prefix"), message.get("partial"))


def _parts(payload: Payload) -> list[dict[str, Any]]:
    return [part for one in payload["messages"] if isinstance(one.get("content"), list) for part in one["content"]]


def _pictures(payload: Payload) -> list[str]:
    return [image for one in payload.get("messages", [payload]) for image in one.get("images", [])]


def _functions(payload: Payload) -> list[dict[str, Any]]:
    called = [call for message in payload["messages"] for call in message.get("tool_calls") or []]
    return [call["function"] for call in called if "function" in call]


def _named(payload: Payload) -> list[str]:
    tools = [tool["function"] for tool in payload.get("tools", []) if "function" in tool]
    return [function["name"] for function in (*_functions(payload), *tools)]


_not_empty = _rule(lambda p: p["messages"], "[] is too short - 'messages'")
_some_user = _rule(lambda p: "user" in _roles(p), "messages: there is no user message")
_user_last = _rule(
    lambda p: _roles(p)[-1] in ("user", "tool") or _begun(p["messages"][-1]),
    "The last message must be of role user or tool",
)
_prefill_last = _rule(lambda p: not any(map(_begun, p["messages"][:-1])), "prefix must be the last message")
_late = _rule(lambda p: not _SYSTEM & set(_roles(p)[1:]), "System message must be at the beginning")
_opens = _rule(lambda p: next(iter(_spoken(p)), "user") == "user", "the user must speak first")
_alternate = _rule(lambda p: all(a != b or a == "tool" for a, b in pairwise(_spoken(p))), "roles must alternate")
_text_only = _rule(lambda p: {part["type"] for part in _parts(p)} <= {"text"}, "unknown variant, expected `text`")
_arguments = _rule(lambda p: all(is_object(one["arguments"]) for one in _functions(p)), "arguments: no JSON object")


def _tools_named(form: str) -> Rule:
    return _rule(lambda p: all(re.fullmatch(form, name) for name in _named(p)), f"Invalid name: not '^{form}$'")


_tool_names = _tools_named(_NAME)
_prompt = _rule(lambda p: p["prompt"], "missing prompt")
_images = _rule(lambda p: all(map(is_base64, _pictures(p))), "illegal base64 data at input byte 0")


def _answered(payload: Payload) -> None:
    """Each call of a message has one result right after it. Ollama's results may have a tool_name and no id."""
    waiting: list[tuple[str | None, str]] = []
    seen: set[str | None] = set()
    for at, message in enumerate(payload["messages"]):
        if message["role"] == "tool":
            ident, name = message.get("tool_call_id"), message.get("tool_name")
            found = [one for one in waiting if (ident in (None, one[0]) or not one[0]) and name in (None, one[1])]
            _require(found, f"messages.{at}: a message with role 'tool' must be a response to a preceding 'tool_calls'")
            waiting.remove(found[0])
            continue
        _require(not waiting, f"messages.{at}: 'tool_calls' did not have response messages: {waiting}")
        calls = message.get("tool_calls") or []
        waiting = [(call.get("id"), call.get("function", {}).get("name")) for call in calls]
        for ident, _ in waiting:
            _require(ident is None or ident not in seen, f"messages.{at}: duplicate tool call id {ident!r}")
            seen.add(ident)
    _require(not waiting, f"'tool_calls' did not have response messages: {waiting}")


def _openai(payload: Payload) -> None:
    _require(payload.get("tools") != [], "[] is too short - 'tools'")
    for at, message in enumerate(payload["messages"]):
        name, calls = message.get("name", "n"), message.get("tool_calls", [])
        _require(re.fullmatch(_NAME, name), f"Invalid 'messages[{at}].name': expected '^{_NAME}$', got {name!r}")
        _require([] not in (message.get("content"), message.get("tool_calls")), f"[] is too short - messages.{at}")
        for ident in (call["id"] for call in calls):
            _require(1 <= len(ident) <= 40, f"Invalid 'messages[{at}].tool_calls[].id': length {len(ident)}")
        said = {key for key in ("content", "tool_calls", "refusal", "audio") if message.get(key) is not None}
        _require(said, f"Invalid value for 'content' of messages[{at}]: expected a string, got null.")


def _moonshot(payload: Payload) -> None:
    for at, message in enumerate(payload["messages"]):
        role = message["role"]
        _require("content" in message, f"message at position {at} with role {role!r} must have a content")
        full = message["content"] or message.get("tool_calls") or role == "tool"
        _require(full, f"message at position {at} with role {role!r} must not be empty")


def _mistral(payload: Payload) -> None:
    for one, two in pairwise(_roles(payload)):
        _require((one, two) != ("tool", "user"), "Unexpected role 'user' after role 'tool'")
        _require(two != "system" or one in ("system", "user"), f"Unexpected role 'system' after role {one!r}")
    for message in payload["messages"]:
        if message["role"] == "assistant":
            full = message.get("content") or message.get("tool_calls")
            _require(full, "Assistant message must have either content or tool_calls, but not none.")
        for call in message.get("tool_calls") or []:
            nine = re.fullmatch("[a-zA-Z0-9]{9}", call["id"])
            _require(nine, f"Tool call id was {call['id']} but must be a-z, A-Z, 0-9, with a length of 9.")


def _single_keys(payload: Payload) -> None:
    for at, message in enumerate(payload["messages"]):
        listed = isinstance(message["content"], list)
        _require(listed and all(len(part) == 1 for part in message["content"]), f"messages.{at}: content is no list")
        _require(message["content"] or message.get("tool_calls"), f"messages.{at}: content is empty")


def _turns(roles: list[str], other: str) -> None:
    for at, role in enumerate(roles):
        expected = ("user", other)[at % 2]
        _require(role == expected, f"roles must alternate between user and {other}, user first; {at} is {role!r}")


def _blocks(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content or [])


def _anthropic(payload: Payload) -> None:
    messages = payload["messages"]
    _require(messages, "messages: at least one message is required")
    spoken = [message["role"] for message in messages]
    for before, role, behind in zip(["", *spoken], spoken, [*spoken[1:], "assistant"], strict=False):
        _require(role != "system" or (before, behind) == ("user", "assistant"), "role 'system': wrong place")
    messages = [message for message in messages if message["role"] != "system"]
    _turns([message["role"] for message in messages], "assistant")
    asked: list[str] = []
    used: list[str] = []
    for at, message in enumerate(messages):
        blocks = _blocks(message["content"])
        _anthropic_blocks(f"messages.{at}", message["role"], blocks)
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        first = list(takewhile(lambda block: block["type"] == "tool_result", blocks))
        right = len(first) == len(results) and sorted(results) == sorted(asked)
        _require(right, f"messages.{at}: `tool_use` ids {asked} are not answered by the leading `tool_result` blocks")
        asked = [block["id"] for block in blocks if block["type"] == "tool_use"]
        used += asked
    _require(not asked, f"`tool_use` ids were found without `tool_result` blocks immediately after: {asked}")
    _require(len(set(used)) == len(used), "messages: `tool_use` ids must be unique")
    _require(all(re.fullmatch(_NAME, ident) for ident in used), f"tool_use.id should match '^{_NAME}$': {used}")
    if messages[-1]["role"] == "assistant":
        text = _blocks(messages[-1]["content"])[-1].get("text", "")
        _require(text == text.rstrip(), "messages: final assistant content cannot end with trailing whitespace")
    _anthropic_tools(payload)
    _anthropic_cache(payload)


def _anthropic_blocks(where: str, role: str, blocks: list[dict[str, Any]]) -> None:
    _require(blocks, f"{where}: content must be non-empty")
    kinds = [block["type"] for block in blocks]
    inside = [block for one in blocks if one["type"] == "tool_result" for block in _blocks(one.get("content"))]
    for block in blocks:
        _require(block["type"] != "text" or block["text"].strip(), f"{where}: text content blocks must be non-empty")
    for block in (*blocks, *inside):
        source = block.get("source", {})
        _require(source.get("type") != "base64" or is_base64(source["data"]), f"{where}: invalid base64 data")
    lists = [one["content"] for one in blocks if isinstance(one.get("content"), list)]
    _require(all(block.get("text", "t") for content in lists for block in content), f"{where}: empty text block")
    thoughts = [kind for kind in kinds if kind in ("thinking", "redacted_thinking")]
    _require(thoughts == kinds[: len(thoughts)], f"{where}: thinking blocks must come first")
    _require(
        role == "assistant" or not {*thoughts, "tool_use"} & set(kinds), f"{where}: not in a user message: {kinds}"
    )


def _anthropic_tools(payload: Payload) -> None:
    for block in _blocks(payload.get("system")) if payload.get("system") else []:
        _require(block["text"], "system: text content blocks must be non-empty")
    names = [tool["name"] for tool in payload.get("tools", [])]
    _require(len(set(names)) == len(names), "tools: Tool names must be unique.")
    for name in names:
        _require(re.fullmatch("[a-zA-Z0-9_-]{1,128}", name), f"tools: name {name!r} should match '^[a-zA-Z0-9_-]+$'")


def _anthropic_cache(payload: Payload) -> None:
    blocks = [*payload.get("tools", []), *_blocks(payload.get("system"))]
    for message in payload["messages"]:
        for block in _blocks(message["content"]):
            blocks += [*(_blocks(block.get("content")) if block["type"] == "tool_result" else []), block]
    lives = [block["cache_control"].get("ttl", "5m") for block in blocks if block.get("cache_control")]
    _require(len(lives) <= 4, f"A maximum of 4 blocks with cache_control may be provided. Found {len(lives)}.")
    _require(lives == sorted(lives), "a ttl='1h' cache_control block must not come after a ttl='5m' one")  # 1h < 5m


def _gemini(payload: Payload) -> None:
    contents = payload["contents"]
    _turns([content.get("role") or "none" for content in contents], "model")
    _require(len(contents) % 2, "contents: must not be empty, and end with a user role")
    names = [tool["name"] for one in payload.get("tools", []) for tool in one.get("function_declarations", [])]
    before: Counter[Any] = Counter()
    for at, content in enumerate(contents):
        parts = content.get("parts")
        _require(parts, f"contents[{at}].parts must not be empty")
        for part in parts:
            data = _GEMINI_DATA & set(part)
            _require(len(data) == 1, f"contents[{at}].parts: required oneof field 'data' must have one field: {data}")
            _require(part.get("text") != "", f"contents[{at}].parts: text must not be empty")
        calls, answers = ([p[key] for p in parts if key in p] for key in ("function_call", "function_response"))
        _require(not (calls if at % 2 == 0 else answers), f"contents[{at}]: function part in the wrong role")
        right = Counter((one.get("name"), one.get("id")) for one in answers) == before
        _require(right, f"contents[{at}]: function response parts must equal the function call parts before: {before}")
        before = Counter((one.get("name"), one.get("id")) for one in calls)
        names += [one.get("name", "") for one in (*calls, *answers)]
    for name in names:
        _require(re.fullmatch(_GEMINI_NAME, name), f"Invalid function name {name!r}")


def _responses(payload: Payload) -> None:
    items = payload["input"]
    _require(items, "Invalid 'input': empty array")
    kinds = [item.get("type", "message") for item in items]
    waiting: set[str] = set()
    seen: set[str] = set()
    for at, (item, kind) in enumerate(zip(items, kinds, strict=True)):
        ident = item.get("call_id") or ""
        if kind == "function_call":
            _require(1 <= len(ident) <= 64 and ident not in seen, f"Invalid 'input[{at}].call_id': {ident!r}")
            _require(re.fullmatch(_NAME, item["name"]), f"Invalid 'input[{at}].name': {item['name']!r}")
            _require(is_object(item["arguments"]), f"Invalid 'input[{at}].arguments': no JSON object")
            waiting.add(ident)
            seen.add(ident)
        elif kind == "function_call_output":
            _require(ident in waiting, f"No tool call found for function call output with call_id {ident}.")
            waiting.remove(ident)
        elif kind == "reasoning":
            after = items[at + 1] if at + 1 < len(items) else {"type": "nothing"}
            follows = after.get("type") == "function_call" or after.get("role") == "assistant"
            _require(follows, f"Item {item['id']!r} of type 'reasoning' was provided without its following item.")
        elif kind == "message":
            parts = [part["type"] for part in item["content"]] if isinstance(item["content"], list) else []
            wrong = "input_" if item["role"] == "assistant" else "output_"
            _require(not any(part.startswith(wrong) for part in parts), f"Invalid value in input[{at}]: {parts}")
    _require(not waiting, f"No tool output found for function calls {sorted(waiting)}.")
    for tool in payload.get("tools", []):
        _require(re.fullmatch(_NAME, tool.get("name", "n")), f"Invalid 'tools[].name': {tool.get('name')!r}")


_CHAT: tuple[Rule, ...] = (_not_empty, _answered)
_FORM = (*_CHAT, _arguments)
_OPENAI = (*_FORM, _tool_names, _openai)
_DASHSCOPE = (*_FORM, _tool_names, _late, _some_user, _opens, _alternate, _user_last, _prefill_last)

RULES: dict[str, tuple[Rule, ...]] = {
    "openai": _OPENAI,
    "litellm": _OPENAI,
    "xai": _OPENAI,
    "deepseek": (*_FORM, _tool_names, _alternate, _user_last, _prefill_last, _text_only),
    "zhipu": (*_FORM, _tool_names, _some_user),
    "mistral": (*_FORM, _tool_names, _some_user, _user_last, _prefill_last, _mistral),
    # Its own tools are named like $web_search.
    "moonshot": (*_FORM, _tools_named(rf"\$?{_NAME}"), _moonshot),
    "vllm": (*_FORM, _late, _opens),
    "ollama": (*_CHAT, _images),
    "ollama-generate": (_prompt, _images),
    "dashscope": _DASHSCOPE,
    "dashscope-multimodal": (*_DASHSCOPE, _single_keys),
    "anthropic": (_anthropic,),
    "gemini": (_gemini,),
    "openai-responses": (_responses,),
}


def in_order(provider: str, payload: Payload) -> None:
    """Refuse, with a ValueError in words like the server's, a payload of the right types in the wrong order."""
    for rule in RULES[provider]:
        rule(payload)


def msg(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def calls(*ids: str, **function: Any) -> dict[str, Any]:
    called = {"name": "weather", "arguments": "{}", **function}
    return msg("assistant", "", tool_calls=[{"id": one, "type": "function", "function": called} for one in ids])


def parts(role: str, *given: Any) -> dict[str, Any]:
    return {"role": role, "parts": list(given)}


def told(**more: Any) -> dict[str, Any]:
    answer = {"name": "weather", "response": {"output": "Rain."}, **more}
    return parts("user", {"function_response": answer})


TEXT, THOUGHT = {"type": "text", "text": "Yes."}, {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
CACHED, CACHED_LONG = (TEXT | {"cache_control": {"type": "ephemeral", "ttl": ttl}} for ttl in ("5m", "1h"))
IMAGE = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
SCHEMA = {"type": "object", "properties": {}}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}
USE = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "Rain."}
FUNCTION = {"function_call": {"name": "weather", "args": {}}}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": []}
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
DOTTED = RESULT | {"tool_use_id": "a.b"}
BITMAP = {"type": "image", "source": {"type": "base64", "media_type": "image/bmp", "data": PNG}}
S, U, A = (msg("system", "Be brief."), msg("user", "Is it raining?"), msg("assistant", "It is."))
RETURNED = [msg("tool", "Rain.", tool_call_id=f"call_{number}") for number in (1, 2)]
USED = msg("assistant", [USE]), msg("user", [RESULT])
GEMINI = parts("user", {"text": "Is it raining?"}), parts("model", {"text": "It is."}), parts("model", FUNCTION), told()
NINTH = msg("tool", "Rain.", tool_call_id="call00001", name="weather")
CALL = {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "Rain."}
TURNS = (S, U, A, calls("call_1", "call_2"), *RETURNED, *USED, *GEMINI, CALL, OUTPUT)
PIECES: dict[str, Any] = dict(zip("SUAC12TRumfrco", TURNS, strict=True))


def turns(*given: Any, key: str = "messages", **more: Any) -> dict[str, Any]:
    """A payload; the letters of a text stand for the turns in `PIECES`."""
    spelled = [one for some in given for one in (some if isinstance(some, str) else [some])]
    return {key: [PIECES[one] if isinstance(one, str) else one for one in spelled], **more}


_KEY = {"gemini": "contents", "openai-responses": "input"}
contents, items = partial(turns, key="contents"), partial(turns, key="input")
_ORDERS = {  # turns in the wrong order; "-" means no turn at all
    "openai": "- U1 UCU UC UC1A UC1U2 UC112 UC12C12",
    "deepseek": "- U1 SUU UAAU UA",
    "zhipu": "- S UC1",
    "mistral": "- S UA UASU UC12 UU1",
    "moonshot": "- UC1U2",
    "vllm": "- UASU SAU SSU",
    "ollama": "- U1",
    "dashscope": "- SSU UASU S UA UU AU UC1",
    "anthropic": "- SU UTU UT R UTRR",
    "gemini": "- mu um ufu ufm r umr",
    "openai-responses": "- Uc Uo Uoc Ucoo Ucco Uco1",
}
BROKEN: list[tuple[str, str, Payload]] = [
    *(
        (who, f"turns {o}", turns(o.strip("-"), key=_KEY.get(who, "messages")))
        for who in _ORDERS
        for o in _ORDERS[who].split()
    ),
    ("openai", "arguments that are no object", turns("U", calls("call_1", arguments="[1]"), "1")),
    ("openai", "arguments that are no text", turns("U", calls("call_1", arguments={}), "1")),
    ("xai", "a name with a space", turns(U | {"name": "Dr. Who"})),
    ("openai", "a call id of 41 signs", turns("U", calls("c" * 41), msg("tool", "Rain.", tool_call_id="c" * 41))),
    ("openai", "a tool name with a dot", turns("U", calls("call_1", name="weather.now"), "1")),
    ("openai", "an assistant that says nothing", turns("U", msg("assistant", None))),
    ("openai", "Gemini's role", turns("U", A | {"role": "model"})),
    ("openai", "an unknown key", turns(U | {"tool_name": "weather"})),
    ("litellm", "a thought without signature", turns("U", A | {"thinking_blocks": [{"type": "thinking"}]})),
    ("deepseek", "an image", turns(msg("user", [IMAGE]))),
    (
        "moonshot",
        "calls without content",
        turns("U", {"role": "assistant", "tool_calls": calls("call_1")["tool_calls"]}, "1"),
    ),
    ("moonshot", "an empty user", turns("S", msg("user", ""))),
    ("moonshot", "an empty assistant", turns("U", msg("assistant", ""), "U")),
    ("mistral", "a call id of eight signs", turns("U", calls("call0001"), NINTH | {"tool_call_id": "call0001"})),
    ("mistral", "a user behind a result", turns("U", calls("call00001"), NINTH, "U")),
    ("mistral", "an empty assistant", turns("U", msg("assistant", ""), "U")),
    ("ollama", "arguments as text", turns("UC12")),
    ("ollama", "content in parts", turns(msg("user", [TEXT]))),
    ("ollama", "a developer", turns(S | {"role": "developer"}, "U")),
    ("ollama", "an image that is a url", turns(U | {"images": ["https://example.com/a"]})),
    ("ollama-generate", "an empty prompt", {"system": "Be brief.", "prompt": ""}),
    ("dashscope", "OpenAI's parts", turns(msg("user", [TEXT]))),
    ("dashscope-multimodal", "content as text", turns("U")),
    ("dashscope-multimodal", "two keys in a part", turns(msg("user", [{"image": "https://a/b.png", "text": "?"}]))),
    ("anthropic", "an empty text block", turns(msg("user", [TEXT | {"text": ""}]))),
    ("anthropic", "empty content", turns(msg("user", []))),
    ("anthropic", "text before a result", turns("UT", msg("user", [TEXT, RESULT]))),
    ("anthropic", "the same use id twice", turns("U", msg("assistant", [USE, USE]), msg("user", [RESULT, RESULT]))),
    ("anthropic", "a use id with a dot", turns("U", msg("assistant", [USE | {"id": "a.b"}]), msg("user", [DOTTED]))),
    ("anthropic", "a tool name of 129 signs", turns("U", tools=[{"name": "t" * 129, "input_schema": SCHEMA}])),
    ("anthropic", "OpenAI's tool", turns("U", tools=[TOOL])),
    ("anthropic", "white space at the end", turns("U", msg("assistant", "It is "))),
    ("anthropic", "five cache points", turns(msg("user", [CACHED] * 5))),
    ("anthropic", "a long cache after a short", turns(msg("user", [CACHED_LONG]), system=[CACHED])),
    ("anthropic", "a late thought", turns("U", msg("assistant", [TEXT, THOUGHT]))),
    ("anthropic", "a user's thought", turns(msg("user", [THOUGHT, TEXT]))),
    ("anthropic", "a bitmap", turns(msg("user", [BITMAP]))),
    ("gemini", "the role assistant", contents("u", parts("assistant", {"text": "It is."}), "u")),
    ("gemini", "no parts", contents(parts("user"))),
    ("gemini", "one answer to two calls", contents("u", parts("model", FUNCTION, FUNCTION), "r")),
    ("gemini", "an answer by another name", contents("uf", told(name="time"))),
    ("gemini", "an answer with an id of its own", contents("uf", told(id="call_1"))),
    ("gemini", "an answer that is no object", contents("uf", told(response="Rain."))),
    ("gemini", "a function name with a space", contents("u", tools=[{"function_declarations": [{"name": "a b"}]}])),
    ("gemini", "OpenAI's messages", contents("U")),
    ("openai-responses", "a call id of 65 signs", items("U", *(PIECES[one] | {"call_id": "c" * 65} for one in "co"))),
    (
        "openai-responses",
        "output text of a user",
        items(msg("user", [TEXT | {"type": "output_text", "annotations": []}])),
    ),
    ("openai-responses", "input text of the assistant", items("U", msg("assistant", [TEXT | {"type": "input_text"}]))),
    ("openai-responses", "a reasoning item at the end", items("U", REASONING)),
    ("openai-responses", "a chat tool", items("U", tools=[TOOL])),
]
