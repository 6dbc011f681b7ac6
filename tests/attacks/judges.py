"""What a model would read in a prompt: its turns and their roles, its tool markers and special tokens.

A prompt with an attack is compared with the same prompt with an honest value: whatever it has more of was forged. The
layouts are written from the tokenizers and chat templates of the models, and not from lazyprompt's tables of markers,
in which a missing marker would otherwise go unnoticed.

A text is read as it is, and again as a tokenizer that normalizes it would read it: without invisible characters, with
the characters that Unicode folds (full-width letters, ligatures) folded, and with uniform line ends.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias, get_args
from unicodedata import normalize

Kind: TypeAlias = Literal["turn", "role", "slot", "tool", "special"]
KINDS: tuple[Kind, ...] = get_args(Kind)

# The text of an honest value, of a second value beside it, and of a line after an attack.
HEAD, NEXT, TAIL = "Hello there", "and so on 5c", "That is all of 7f3a."
# What only the slot named secret, the environment and a file hold.
CANARY = "CANARY-5309"
# The role of text outside of all turns.
OUTSIDE = "outside"
# Output that shows that a template in a value was evaluated.
_EVALUATED = ("5332114", "<class '")


class Message(NamedTuple):
    """A message as a library made it, or a whole flat text."""

    role: str  # empty for flat text
    text: str
    extras: int = 0  # the number of tools, calls, media and the like beside the text


class Layout(NamedTuple):
    """How a model's flat text is divided."""

    opens: tuple[tuple[str, str], ...]  # the patterns that begin a turn, with its role; a group in one is the role
    closes: str = "(?!)"
    tools: str = "(?!)"
    specials: str = "(?!)"  # further special tokens, and reasoning tags


class Reading(NamedTuple):
    """The role and the text of each turn, and the numbers of tools' markers and of special tokens."""

    turns: tuple[tuple[str, str], ...]
    tools: int
    specials: int


def _roles(form: str, roles: str = "system user assistant") -> tuple[tuple[str, str], ...]:
    return tuple((re.escape(form.format(role)), role) for role in roles.split())


_REASONING = "</?think>"
_QWEN_TOOLS = "</?tool_call>|</?tool_response>|</?tools>"
_PIPED = r"<\|{}\|>"
_QWEN_SPECIALS = _PIPED.format(
    "(?:endoftext|fim_prefix|fim_middle|fim_suffix|fim_pad|repo_name|file_sep|vision_start|vision_end|vision_pad|image_pad|"
    "video_pad|object_ref_start|object_ref_end|box_start|box_end|quad_start|quad_end)"
)
_LLAMA_3_TOOLS = _PIPED.format("(?:python_tag|python_start|python_end)")
_LLAMA_3_SPECIALS = _PIPED.format(
    r"(?:begin_of_text|end_of_text|finetune_right_pad_id|step_id|image|patch|reserved_special_token_\d+)"
)
_GEMMA_SPECIALS = (
    r"<bos>|<eos>|<pad>|<unk>|<mask>|<unused\d+>|<start_of_image>|<end_of_image>|<image_soft_token>|<audio_soft_token>"
)
_SEP = "\u2581"
_DEEPSEEK_TOOLS = f"<\uff5ctool{_SEP}(?:calls?|outputs?|sep)(?:{_SEP}(?:begin|end))?\uff5c>"
_DEEPSEEK_SPECIALS = (
    f"<\uff5c(?:fim{_SEP}\\w+|{_SEP}pad{_SEP}|place{_SEP}holder{_SEP}no{_SEP}\\d+)\uff5c>|<pad>|{_REASONING}"
)
_GLM = Layout(
    _roles("<|{}|>", "system user assistant observation"),
    tools=f"{_QWEN_TOOLS}|</?arg_key>|</?arg_value>",
    specials=r"\[[gs]?MASK\]|<sop>|<eop>|<\|endoftext\|>|<\|(?:begin|end)_of_(?:image|video)\|>|" + _REASONING,
)
_EXAONE = Layout(_roles("[|{}|]"), r"\[\|endofturn\|\]")
# The headers of Alpaca, and those in a prompt of the benchmark.
_HEADERS = "Instruction|Input|Response|text|Function-call Tools"
_SPEAKERS = r"(?mi)^(Ada|Bob|system|user|assistant|tool)[ \t]*:"

LAYOUTS: dict[str, Layout] = {
    "documented": Layout(
        (*_roles("<|start_{}|>", "system"), (r"<\|Human\|>:", "user"), (r"<\|Assistant\|>:", "assistant")),
        r"<\|end_system\|>",
        specials=_PIPED.format("endoftext"),
    ),
    "chatml": Layout(
        ((r"<\|im_start\|>[ \t]*(\w*)", ""),),
        r"<\|im_end\|>",
        rf"{_QWEN_TOOLS}|<\|(?:plugin|interpreter|action_start|action_end|function|args|tool_\w+_(?:start|end))\|>",
        f"{_QWEN_SPECIALS}|{_REASONING}",
    ),
    "llama-2": Layout(
        ((r"\[INST\]", "user"), (r"\[/INST\]", "assistant"), ("<<SYS>>", "system"), ("<</SYS>>", "user")),
        "</?s>",
        specials="<unk>|<PRE>|<MID>|<SUF>|<EOT>|<FILL_ME>",
    ),
    "llama-3": Layout(
        ((r"<\|start_header_id\|>(\w*)(?:<\|end_header_id\|>)?", ""),),
        r"<\|eot_id\|>|<\|eom_id\|>",
        _LLAMA_3_TOOLS,
        rf"{_LLAMA_3_SPECIALS}|<\|end_header_id\|>",
    ),
    "llama-4": Layout(
        ((r"<\|header_start\|>(\w*)(?:<\|header_end\|>)?", ""),),
        r"<\|eot\|>|<\|eom\|>",
        _LLAMA_3_TOOLS,
        _LLAMA_3_SPECIALS,
    ),
    "mistral": Layout(
        ((r"\[INST\]", "user"), (r"\[/INST\]", "assistant"), (r"\[SYSTEM_PROMPT\]", "system")),
        r"\[/SYSTEM_PROMPT\]|</?s>",
        r"\[TOOL_CALLS\]|\[ARGS\]|\[/?TOOL_RESULTS\]|\[/?AVAILABLE_TOOLS\]",
        r"<unk>|<pad>|\[IMG\]|\[IMG_BREAK\]|\[IMG_END\]|\[(?:MIDDLE|PREFIX|SUFFIX)\]|\[/?MODEL_SETTINGS\]|\[TRANSCRIBE\]|"
        r"\[STREAMING_(?:PAD|WORD)\]|\[(?:NEXT|REPEAT)_AUDIO_TEXT\]|\[(?:BEGIN_)?AUDIO\]",
    ),
    "gemma": Layout(((r"<start_of_turn>(\w*)", ""),), "<end_of_turn>", specials=_GEMMA_SPECIALS),
    "gemma-4": Layout(
        ((r"<\|turn>(\w*)", ""),),
        r"<turn\|>",
        r"<\|tool_call>|<tool_call\|>|<\|tool_response>|<tool_response\|>|<\|tool>|<tool\|>",
        rf'{_GEMMA_SPECIALS}|<\|channel>|<channel\|>|<\|"\|>|<\|(?:image|audio)>|<(?:image|audio)\|>',
    ),
    "phi-3": Layout(
        _roles("<|{}|>"), r"<\|end\|>", r"<\|/?tool(?:_call|_response)?\|>", r"<\|endoftext\|>|<\|dummy_\d+\|>"
    ),
    "phi-4": Layout(
        ((r"<\|im_start\|>(\w*)(?:<\|im_sep\|>)?", ""),), r"<\|im_end\|>", specials=f"{_QWEN_SPECIALS}|<\\|im_sep\\|>"
    ),
    "deepseek": Layout(
        (("<\uff5cUser\uff5c>", "user"), ("<\uff5cAssistant\uff5c>", "assistant")),
        f"<\uff5c(?:begin|end){_SEP}of{_SEP}sentence\uff5c>",
        _DEEPSEEK_TOOLS,
        _DEEPSEEK_SPECIALS,
    ),
    "deepseek-v2": Layout(
        ((r"(?:\A|\n\n)User: ", "user"), (r"(?:\A|\n\n)Assistant:", "assistant")),
        f"<\uff5c(?:begin|end){_SEP}of{_SEP}sentence\uff5c>",
        _DEEPSEEK_TOOLS,
        _DEEPSEEK_SPECIALS,
    ),
    "vicuna": Layout(((r"\bUSER: ", "user"), (r"\bASSISTANT:", "assistant")), "</?s>", specials="<unk>"),
    "glm-4": _GLM,
    "chatglm3": Layout(_roles("<|{}|>", "system user assistant observation"), specials=r"\[[gs]?MASK\]"),
    "baichuan2": Layout(
        (("<reserved_106>", "user"), ("<reserved_107>", "assistant")), "</?s>", specials=r"<reserved_\d+>|<unk>"
    ),
    "internlm": Layout(
        ((r"<\|System\|>:", "system"), (r"<\|User\|>:", "user"), (r"<\|Bot\|>:", "assistant")), "<eoa>|<eoh>|</s>"
    ),
    "kimi-k2": Layout(
        _roles("<|im_{}|>"),
        r"<\|im_end\|>",
        r"<\|tool_calls?_\w+\|>",
        r"<\|im_middle\|>|<\|media_\w+\|>|\[(?:EOS|BOS|EOT|PAD|UNK)\]",
    ),
    "seed-oss": Layout(
        ((r"<seed:bos>(\w*)", ""),), "<seed:eos>", "</?seed:tool_call>", "<seed:pad>|</?seed:think>|</?seed:cot_\\w+>"
    ),
    "minimax-m2": Layout(
        ((r"\]~b\](\w*)", ""),),
        r"\[e~\[",
        "</?minimax:tool_call>|</?response>|<(?:invoke|parameter) name=|</(?:invoke|parameter)>",
        r"\]~!b\[|\]![pd]~\[|\]<\][a-z ]+\[>\[|<function_call>|<code_interpreter>|<\w+_file>|<pr_start>|" + _REASONING,
    ),
    "command-r": Layout(
        ((r"<\|START_OF_TURN_TOKEN\|>(?:<\|(\w+)_TOKEN\|>)?", ""),),
        r"<\|END_OF_TURN_TOKEN\|>",
        specials=r"<(?:BOS_TOKEN|EOS_TOKEN|PAD|UNK|CLS|SEP|MASK_TOKEN|EOP_TOKEN)>|<\|(?:USER|SYSTEM|CHATBOT)_TOKEN\|>",
    ),
    "granite": Layout(
        ((r"<\|start_of_role\|>(\w*)(?:<\|end_of_role\|>)?", ""),),
        r"<\|end_of_text\|>",
        rf"{_QWEN_TOOLS}|<\|tool_call\|>",
        r"<\|end_of_role\|>|<fim_(?:prefix|middle|suffix|pad)>|<filename>|<gh_stars>|<jupyter_(?!error)\w+>",
    ),
    "zephyr": Layout(_roles("<|{}|>"), "</s>", specials="<s>|<unk>"),
    "tulu-3": Layout(_roles("<|{}|>"), r"<\|end_of_text\|>", specials=_LLAMA_3_SPECIALS),
    "olmo-2": Layout(_roles("<|{}|>"), r"<\|endoftext\|>", specials=_QWEN_SPECIALS),
    "nemotron-nano-2": Layout(
        (("<SPECIAL_10>", "system"), (r"<SPECIAL_11>(\w*)", "")),
        "<SPECIAL_12>",
        "</?TOOLCALL>|</?TOOL_RESPONSE>|</?AVAILABLE_TOOLS>",
        rf"<SPECIAL_\d+>|</?s>|<unk>|{_REASONING}",
    ),
    "exaone-3.5": _EXAONE,
    "exaone-deep": _EXAONE._replace(specials="</?thought>"),
    "exaone-4": _EXAONE._replace(
        opens=_roles("[|{}|]", "system user assistant tool"), tools=_QWEN_TOOLS, specials=_REASONING
    ),
    "alpaca": Layout(((rf"(?:^|(?<=[\n\r]))[ \t]*### ({_HEADERS}):?", ""),)),
    "history": Layout(
        ((_SPEAKERS, ""), (r"(?mi)^#+[ \t]*(Conversation|Dialogue) History", "header")), r"(?i)<\s*/?\s*history"
    ),
}

# The layouts of custom markers and templates.
LAYOUTS |= {
    "long markers": Layout(
        (
            ("=== WHAT THE DEVELOPER SAYS ===", "system"),
            ("=== WHAT THE USER HAS TO SAY ===", "user"),
            ("=== WHAT THE ASSISTANT ANSWERS ===", "assistant"),
        )
    ),
    "tags": Layout((("<system>", "system"), ("<human>", "user"), ("<answer>", "assistant")), "</(?:system|human)>"),
    "role lines": Layout((("(?m)^System:", "system"), ("(?m)^Human:", "user"), ("(?m)^Machine:", "assistant"))),
    "opening": Layout((("GPT4 Correct User:", "user"), ("GPT4 Correct Assistant:", "assistant")), r"<\|end_of_turn\|>"),
}

_CHATML = LAYOUTS["chatml"]
_XML_CALLS = "</?(?:function|parameter)[=>]"
LAYOUTS["qwen-xml"] = _CHATML._replace(tools=f"{_CHATML.tools}|{_XML_CALLS}")
LAYOUTS["seed-oss"] = LAYOUTS["seed-oss"]._replace(tools=f"{LAYOUTS['seed-oss'].tools}|{_XML_CALLS}")
LAYOUTS["internlm-2"] = _CHATML._replace(specials=rf"{_CHATML.specials}|\[UNUSED_TOKEN_14[0-6]\]|</?s>|<unk>")
LAYOUTS["yi"] = _CHATML._replace(specials=rf"{_CHATML.specials}|<fim_(?:prefix|middle|suffix|pad)>|<filename>|<unk>")

# The layout of a family of models: the first pattern that its name begins with.
_OF_FAMILIES = (
    (r"qwen3-coder|qwen3\.[56]", "qwen-xml"),
    ("qwen|qwq|chatml|hermes|smollm2|lfm2", "chatml"),
    ("internlm", "internlm-2"),
    ("yi", "yi"),
    (r"llama-3|deepseek-r1-distill-llama", "llama-3"),
    ("llama-4", "llama-4"),
    ("llama-2", "llama-2"),
    ("mistral", "mistral"),
    ("gemma-4", "gemma-4"),
    ("gemma", "gemma"),
    ("phi-4-mini|phi-3", "phi-3"),
    ("phi-4", "phi-4"),
    ("deepseek-v2-0628|deepseek-v3|deepseek-r1", "deepseek"),
    ("glm", "glm-4"),
    ("kimi", "kimi-k2"),
    ("granite", "granite"),
)


def layout_of(family: str) -> str:
    """The layout of a family of models; one that has the family's own name where there is no other."""
    return next((layout for pattern, layout in _OF_FAMILIES if re.match(pattern, family)), family)


# Invisible characters, which the normalizers of SentencePiece (nmt_nfkc) and BERT drop.
_UNSEEN = re.compile(
    "[\0-\x08\x0e-\x1b\x7f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff9-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
# Characters that SentencePiece's nmt_nfkc drops, and that other normalizers turn into line ends.
_DROPPED = re.compile("[\x01-\x08\x0b\x0e-\x1f\x7f\x8f\x9f]")
_LINE_ENDS = re.compile("\r\n|[\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
# Texts that no normalizer changes.
_PLAIN = re.compile(r"[\n\t -~]*")
_FORMS: tuple[Literal["NFKC", "NFKD"], ...] = ("NFKC", "NFKD")


def readings(made: Sequence[Message], layout: str) -> tuple[Reading, ...]:
    """Read messages or one flat text: first as they are, then in each normalized form.

    An empty layout is for data, whose texts are not divided into turns.
    """
    plain = _reading(made, layout)
    if not layout or all(_PLAIN.fullmatch(message.text) for message in made):
        return (plain,)
    seen = [[_folded(message, form, dropped) for message in made] for form in _FORMS for dropped in (False, True)]
    return (plain, *(_reading(each, layout) for each in seen))


def _folded(message: Message, form: Literal["NFKC", "NFKD"], dropped: bool) -> Message:  # noqa: FBT001 - one of two
    text = _DROPPED.sub("", message.text) if dropped else message.text
    return message._replace(text=normalize(form, _LINE_ENDS.sub("\n", _UNSEEN.sub("", text))))


def _reading(made: Sequence[Message], layout: str) -> Reading:
    extras = sum(message.extras for message in made)
    if not layout:
        return Reading(tuple((message.role, message.text) for message in made), extras, 0)
    turns = [turn for message in made for turn in _turns(message.text, layout)]
    known = LAYOUTS[layout]
    tools, specials = (sum(len(re.findall(p, message.text)) for message in made) for p in (known.tools, known.specials))
    return Reading(tuple(turns), extras + tools, specials)


@lru_cache(maxsize=len(LAYOUTS))
def _dividing(layout: str) -> tuple[re.Pattern[str], tuple[str, ...]]:
    """The pattern of all that divides a text, and the role that each of its outer groups stands for."""
    known = LAYOUTS[layout]
    patterns = (*known.opens, (known.closes, OUTSIDE))
    many = re.MULTILINE if layout in ("history", "role lines") else re.NOFLAG
    flags = re.MULTILINE | re.IGNORECASE if layout == "history" else many
    whole = "|".join(f"(?P<p{at}>{re.sub(r'^[(][?][a-z]+[)]', '', each)})" for at, (each, _) in enumerate(patterns))
    return re.compile(whole, flags), tuple(role for _, role in patterns)


def _turns(text: str, layout: str) -> Iterable[tuple[str, str]]:
    """The turns of a text; text outside of them has the role ``outside``."""
    pattern, roles = _dividing(layout)
    role, begin = OUTSIDE, 0
    for match in pattern.finditer(text):
        yield from _turn(role, text[begin : match.start()])
        at = int((match.lastgroup or "p0")[1:])
        named = [group for group in match.groups() if group is not None][1:]
        role, begin = roles[at] or (named[0].lower() if named else ""), match.end()
    yield from _turn(role, text[begin:])


def _turn(role: str, text: str) -> Iterable[tuple[str, str]]:
    # A marker that closes a turn opens none: the text between two turns is mostly empty.
    if role != OUTSIDE or text.strip():
        yield role, text


def find_forged(made: Reading, base: Reading, value: str) -> set[Kind]:
    """Return what a value forged in a prompt, compared with the same prompt with an honest value."""
    found: set[Kind] = set()
    roles, honest = (Counter(role for role, _ in reading.turns) for reading in (made, base))
    at, own = _place(base, TAIL) or _place(base, HEAD) or (0, "")
    ends = _place(made, TAIL)
    if roles.total() > honest.total() or (ends is not None and ends[0] != at):
        found.add("turn")
    # Text outside of all turns has no role that an attacker could want.
    gained = {role for role, count in roles.items() if count > honest[role]} | ({ends[1]} if ends else set[str]())
    if (gained | _changed_roles(made, base)) - {own, OUTSIDE}:
        found.add("role")
    if made.tools > base.tools:
        found.add("tool")
    if made.specials > base.specials:
        found.add("special")
    if _has_leaked(made, base, value):
        found.add("slot")
    return found


def _changed_roles(made: Reading, base: Reading) -> set[str]:
    """The roles of the turns whose text differs from the honest prompt, except turns with the value itself."""
    if len(made.turns) != len(base.turns):
        return set()
    return {
        turn[0]
        for turn, honest in zip(made.turns, base.turns, strict=True)
        if turn != honest and not any(words in honest[1] for words in (HEAD, NEXT, TAIL))
    }


def _place(reading: Reading, words: str) -> tuple[int, str] | None:
    """The index and the role of the turn that contains some words."""
    return next(((at, role) for at, (role, text) in enumerate(reading.turns) if words in text), None)


def _has_leaked(made: Reading, base: Reading, value: str) -> bool:
    """Whether a slot was opened, or a template in the value was run."""
    whole, honest = ("\n".join(text for _, text in reading.turns) for reading in (made, base))
    return (
        whole.count(CANARY) > honest.count(CANARY) + value.count(CANARY)
        or any(sign in whole and sign not in value for sign in _EVALUATED)
        or ("hidden" in value and "hidden" not in whole)
    )
