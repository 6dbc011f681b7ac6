"""Attacks on messages for a server that tokenizes them, sent by modules and judged by the ids of a real llama.cpp.

50 attacks for each module; ``--hypothesis-profile=deep`` has 2,000.
"""

import json
from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

import pytest
from gguf import TokenType
from hypothesis import settings

from attacks.attacks import attacks, honest
from lazyprompt import ChatPrompter, OnlineChatModule, SafetyError, TrainableModule
from lazyprompt.modules.chat import ChatModule
from lazyprompt.safety.policy import SAFETIES, Safety
from lazyprompt.safety.restoring import Restorer
from modules.local_models import posted, served
from support.chat_judges import templates
from support.engines import tokenizer
from support.paths import ROOT
from support.tiny_model import TOKENS, LlamaCpp, write_model

pytestmark = pytest.mark.slow  # an engine

ATTACKS = 2 * settings().max_examples
BYTES, CONTEXT = 256, 16_384
TAGS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
# Everything that a message holds is shown, ids too.
TEMPLATE = """{%- if tools %}<|im_start|>tools
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif %}{%- for message in messages %}<|im_start|>{{ message.role }}
{% if message.role == 'tool' %}<tool_response>{{ message.content }}</tool_response>
{%- else %}{{ message.content or '' }}{% endif %}
{%- for call in message.tool_calls or [] %}
<tool_call>{{ call.id }} {{ call.function.name }} {{ call.function.arguments | tojson }}</tool_call>
{%- endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
# Otherwise llama.cpp expects calls in the form of the template, and the random output of the tiny model is an error.
CHOICE: dict[str, Any] = {"tool_choice": "none"}
PROMPTER = ChatPrompter("Be {mood}{manner}. A turn ends with <|im_end|>.", system="")
# The places in a call where the text of an attack may be.
PLACES = (
    *("slot", "two slots", "input", "user", "two parts", "answer", "id", "argument", "key", "result", "description"),
    *("enum", "property"),
)
# The pieces of random attacks, beside the texts of the corpus.
PIECES = (
    *(*TOKENS, *TAGS, "<|im_", "end|>", "<|", "|>", "\\", "<\\|im_end|>", "\\u003c", "\u200b", "{"),
    *("\n", "system", "user\n", '"'),
)


class Attacked(NamedTuple):
    """The arguments of a call with an attack in some of its places."""

    values: dict[str, str]
    history: list[dict[str, Any]]
    tools: list[dict[str, Any]]


def attack_request(text: str, cut: int, places: frozenset[str]) -> Attacked:
    """A call with a text in some places, in two pieces where two stand side by side."""

    def text_at(place: str) -> str:
        return text if place in places else "so"

    def halves(place: str) -> tuple[str, str]:
        return (text[:cut], text[cut:]) if place in places else ("so", "so")

    slots = halves("two slots")
    values = {"mood": text_at("slot") + slots[0], "manner": slots[1], "input": text_at("input")}
    # Escapes and a compact form: such a message is kept as it was written, where it can be.
    arguments = json.dumps({text_at("key"): text_at("argument")}, separators=(",", ":")).replace("<", "\\u003c")
    history: list[dict[str, Any]] = [
        {"role": "user", "content": text_at("user")},
        {"role": "assistant", "content": text_at("answer"), "tool_calls": [
            {"id": text_at("id"), "type": "function", "function": {"name": "pay", "arguments": arguments}}
        ]},
        {"role": "tool", "tool_call_id": text_at("id"), "content": text_at("result")},
        {"role": "user", "content": [{"type": "text", "text": part} for part in halves("two parts")]},
        {"role": "assistant", "content": "Fine."},
    ]  # fmt: skip
    note = {"type": "string", "enum": [text_at("enum")]}
    parameters = {"type": "object", "properties": {"note": note, text_at("property"): {"type": "string"}}}
    function = {"name": "pay", "description": text_at("description"), "parameters": parameters}
    return Attacked(values, history, [{"type": "function", "function": function}])


# The maximum length of a piece of an honest text, in characters.
PIECE = 400
ENDS = ["<|endoftext|>", "<|im_end|>"]
HARMLESS = attack_request("so", 1, frozenset())


def random_attack(seed: int) -> Attacked:
    """An attack out of the corpus, or put together of pieces, in one to three places."""
    random = Random(seed)  # noqa: S311 - no secret
    corpus = [each.text for each in attacks() if len(each.text) < 500]
    text = "".join(random.choices(PIECES, k=random.randint(1, 12)))
    if random.random() < 0.5:
        text = random.choice(corpus) + text[: random.randint(0, 9)]
    text = f"x{text}" if not text.strip() else text
    return attack_request(text, random.randint(1, len(text)), frozenset(random.sample(PLACES, random.randint(1, 3))))


class Judge(NamedTuple):
    """An engine, and the modules that ask it.

    Attributes:
        url: Its address.
        modules: The modules, and the paths to the prompt in what each of them sends.
    """

    url: str
    online: OnlineChatModule
    local: TrainableModule

    def module(self, kind: str, safety: Safety) -> ChatModule:
        """A module with a prompter of some safety."""
        found = self.online if kind == "online" else self.local
        return found.share(PROMPTER.with_safety(safety))

    def ids(self, module: ChatModule, call: Attacked) -> list[int]:
        """The ids that the engine makes of what a module sends."""
        payload = module.payload(*call)
        if "prompt" in payload:
            return LlamaCpp(self.url).tokens(payload["prompt"])
        body = {key: payload[key] for key in ("messages", "tools", *CHOICE)}
        return LlamaCpp(self.url).tokens(posted(self.url, "/apply-template", **body)["prompt"])

    def structure(self, module: ChatModule, call: Attacked) -> list[int]:
        """The ids of special tokens in a prompt; those of bytes come first in the vocabulary."""
        return [token for token in self.ids(module, call) if token >= BYTES]


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    tokens = TOKENS | dict.fromkeys(TAGS, TokenType.USER_DEFINED)
    path = write_model(
        tmp_path_factory.mktemp("model") / "tiny.gguf", {"default": TEMPLATE}, tokens=tokens, context=CONTEXT
    )
    letter = str(tokenizer().encode("o").ids[0])
    options: dict[str, Any] = {"max_tokens": 1, "temperature": 0.0, "logit_bias": {letter: 100}}
    with served(path, context=CONTEXT) as engine:
        online = OnlineChatModule("openai", model="tiny", base_url=f"{engine.url}/v1", api_key="k", **CHOICE, **options)
        with TrainableModule(path, url=engine.url, **options) as local:
            yield Judge(engine.url, online, local)
        online.close()


def tokens_asked(module: ChatModule, call: Attacked) -> int:
    """The tokens of the prompt, as the engine counts them with its answer."""
    usage = module(*call).usage
    assert usage is not None
    return usage["prompt_tokens"]


@pytest.mark.parametrize("kind", ["online", "local"])
def test_attacks_forge_no_special_tokens_at_a_llamacpp_server(judge: Judge, kind: str) -> None:
    guarded, refusing, open_to_all = (judge.module(kind, safety) for safety in SAFETIES)
    harmless = judge.structure(guarded, HARMLESS)
    forging = 0
    for seed in range(ATTACKS):
        call = random_attack(seed)
        ids = judge.ids(guarded, call)
        assert (seed, [token for token in ids if token >= BYTES]) == (seed, harmless)
        assert (seed, tokens_asked(guarded, call)) == (seed, len(ids))
        if judge.structure(open_to_all, call) != harmless:
            forging += 1
            with pytest.raises(SafetyError):
                refusing(*call)
    assert forging > ATTACKS / 3, "many attacks work where nothing is neutralised"


def pieces(text: str) -> Iterator[str]:
    """A text in pieces of whole lines."""
    piece = ""
    for line in text.splitlines():
        if piece and len(piece) + len(line) > PIECE:
            yield piece.strip()
            piece = ""
        piece += f"\n{line}"
    yield piece.strip()


def honest_pieces() -> list[str]:
    """Documents, code and chat templates that name markers, messages of people, and logs of prompts."""
    files = [path for kind in ("docs/**/*.md", "*.md", "lazyprompt/**/*.py") for path in sorted(ROOT.glob(kind))]
    texts = [*(path.read_text(encoding="utf-8") for path in files), *templates().values()]
    messages = [each.text for each in honest()]
    logs = [json.dumps({"level": "info", "prompt": f"<|im_start|>user\n{text}<|im_end|>\n"}) for text in messages]
    return [piece for text in (*texts, *messages, *logs) for piece in pieces(text) if piece]


def literal(text: str) -> str:
    """A grammar of llama.cpp that allows only one text."""
    plain = (each if each.isascii() and each.isalnum() else f"\\U{ord(each):08x}" for each in text)
    return f'root ::= "{"".join(plain)}"'


def test_honest_text_repeated_by_the_model_is_restored(judge: Judge) -> None:
    module = judge.online.share(ChatPrompter(system=""))
    changed, added, lost, size = 0, 0, 0, 0
    for piece in honest_pieces()[:: max(1, 500 // settings().max_examples)]:
        payload = module.payload(piece)
        sent = payload["messages"][-1]["content"]
        size += len(piece.encode())
        if sent == piece:
            continue
        changed, added = changed + 1, added + len(sent.encode()) - len(piece.encode())
        # A grammar makes the model repeat exactly the text that it was sent.
        settings_of_call: dict[str, Any] = {"max_tokens": CONTEXT // 2, "logit_bias": None, "tool_choice": None}
        response = module(piece, stop=ENDS, extra_body={"grammar": literal(sent)}, **settings_of_call)
        if response != piece:
            # The honest text itself contains a sequence that looks neutralized.
            assert Restorer(payload.neutralised).restore(piece) != piece
            lost += 1
    assert changed > 0
    assert lost <= changed / 20
    print(f"{size} bytes, {changed} pieces changed, {added} bytes added, {lost} pieces not restored")  # noqa: T201
