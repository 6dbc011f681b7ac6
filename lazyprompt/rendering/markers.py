"""The texts that a model family writes around system text, turns, tool results and tool calls."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, cast, get_args

from lazyprompt._base.frozen import read_only
from lazyprompt._base.json import checked_text
from lazyprompt.errors import SafetyError, TemplateError, check_names, did_you_mean
from lazyprompt.rendering.tool_form import GENERAL_FORM, NO_FORM, ToolForm
from lazyprompt.safety.find import is_breakable

if TYPE_CHECKING:
    from collections.abc import Sequence

SystemPlace: TypeAlias = Literal["turn", "first_user", "last_user"]

# Matches a token in a marker: <…>, […], or ✿…✿ (used by a few families).
_TOKEN = re.compile(r"(?<!<)<++[^<>\s]++>++|\[/?[A-Z_0-9a-z]+\]|\[\|[a-z]+\|\]|✿[^✿\s]+✿")

# Matches the beginning of a tool call that is a JSON object, or a list of JSON objects.
JSON_CALL = re.compile(r'(?<![\s\[])[\s\[]*+\{\s*+"')


@read_only
@dataclass(frozen=True, slots=True)
class Markers:
    """The markers around each part of a flat prompt; ``""`` means no marker.

    Args:
        sos: The start of a system turn.
        eos: The end of a system turn.
        soh: The start of a human (user) turn.
        eoh: The end of a human (user) turn.
        soa: The start of an assistant turn.
        eoa: The end of an assistant turn.
        soe: The start of a tool result (an environment turn).
        eoe: The end of a tool result.
        tool_start: The text before the name in a tool call.
        tool_args: The text between the name and the JSON arguments in a tool call.
        tool_end: The text after the arguments in a tool call.
        stop: The stop sequences for an engine, in addition to the model's end-of-text token.
        system: The family's default system text; ``""`` for none, ``None`` for lazyprompt's default.
        bos: The beginning-of-text token.
        generation: The generation prompt, if it differs from ``soa``.
        tools: The text of the tools block, with the placeholder ``{tools}`` for the tools.
        tool_join: The text between two tools; if None, all tools are written as one JSON list.
        result_join: The text between two consecutive tool results; if None, each result is written as a separate turn.
        exact: True if the markers contain all the spacing of the model's own template, so that no spacing is added.
        system_place: The turn that contains the system text if ``exact`` is True: a system turn, or the first or last
            user turn.
        trim: The roles from whose text the model's template strips surrounding white space; any of ``system``,
            ``user``, ``assistant`` and ``tool``.
        preamble: The text before the first system text if ``exact`` is True. The preamble is written even if a prompt
            has no system text.
        empty_system: True to write a system turn even for a prompt without system text, if ``exact`` is True.
        controls: Additional control sequences of the model.
        family: The name of the family.
        tool_form: The features of the model's tool format that the other markers cannot express.

    Raises:
        TemplateError: A marker is not text, a role in ``trim`` is unknown, or ``system_place`` is unknown.
    """

    sos: str = ""
    eos: str = ""
    soh: str = ""
    eoh: str = ""
    soa: str = ""
    eoa: str = ""
    soe: str = ""
    eoe: str = ""
    tool_start: str = ""
    tool_args: str = ""
    tool_end: str = ""
    stop: tuple[str, ...] = ()
    system: str | None = None
    bos: str = ""
    generation: str | None = None
    tools: str = "### Function-call Tools. \n\n{tools}\n\n"
    tool_join: str | None = None
    result_join: str | None = None
    exact: bool = False
    system_place: SystemPlace = "turn"
    trim: tuple[str, ...] = ()
    preamble: str = ""
    empty_system: bool = False
    controls: tuple[str, ...] = ()
    family: str = ""
    tool_form: ToolForm = GENERAL_FORM

    def __post_init__(self) -> None:
        for name in (*TURN_MARKERS, "tool_start", "tool_args", "tool_end", "tools", "preamble"):
            value: object = getattr(self, name)
            if not isinstance(value, str):
                raise TemplateError(f"marker {name} must be text, not {type(value).__name__}; use '' for no marker")
        if not _are_texts(self.stop):
            raise TemplateError(f"stop must be a list of strings, not {self.stop!r}")
        checked_text(self.system, "the system text of the markers", TemplateError)
        object.__setattr__(self, "stop", tuple(self.stop))
        if not _are_texts(self.trim) or not _TRIMMED.issuperset(self.trim):
            raise TemplateError(f"trim must be a list of roles ({', '.join(sorted(_TRIMMED))}), not {self.trim!r}")
        object.__setattr__(self, "trim", tuple(self.trim))
        if self.system_place not in get_args(SystemPlace):
            raise TemplateError(f"unknown system_place {self.system_place!r}; expected one of {get_args(SystemPlace)}")
        if self.tools.count("{tools}") != 1:
            raise TemplateError(f"the tools marker must contain {{tools}} exactly once; got {self.tools!r}")
        if not isinstance(cast("object", self.tool_form), ToolForm):
            raise TemplateError(f"tool_form must be a ToolForm, not {type(self.tool_form).__name__}")

    @classmethod
    def for_model(cls, name: str | Markers) -> Markers:
        """Return the markers for a model.

        Args:
            name: A model or family, such as ``Qwen2.5-7B-Instruct``, ``Qwen/Qwen2.5-7B-Instruct`` or ``qwen2.5``.
                Markers are returned unchanged.

        Returns:
            The markers of the model's family.

        Raises:
            TemplateError: The name matches no known model family. The error message suggests the most similar family,
                and explains how to pass custom markers.
        """
        return name if isinstance(name, Markers) else _of_model(_checked_name(name))

    @classmethod
    def families(cls) -> tuple[str, ...]:
        """Return the names of the known model families."""
        from lazyprompt.rendering.families import FAMILIES  # noqa: PLC0415 - many prompts name no model

        return tuple(FAMILIES)

    @classmethod
    def known_sequences(cls) -> frozenset[str]:
        """Return the control sequences of all families, for prompts whose model is unknown.

        Words such as ``User:`` and the tokens of a single tokenizer, such as ``<filename>``, are excluded: they also
        occur in ordinary text, and only one family uses them as control sequences.
        """
        return _known_sequences()

    def evolve(self, **changes: object) -> Self:
        """Return a copy of the markers with some values changed.

        Raises:
            TemplateError: A keyword is not the name of a marker.
        """
        check_names(changes, [field.name for field in fields(self)], "marker", TemplateError)
        return replace(self, **changes)  # type: ignore[arg-type]  # __post_init__ checks them

    @property
    def call_pattern(self) -> str:
        """The pattern for a tool call; Hermes' pattern if the markers define none."""
        own = self.tool_start, self.tool_args, self.tool_end
        start, between, end = own if self.tool_start else _HERMES_CALL
        return self.tool_form.call or f"{start}{{name}}{between}{{arguments}}{end}"

    @property
    def turn_sequences(self) -> frozenset[str]:
        """The texts that open or close a turn in this family's format."""
        # Skip tokens in the generation prompt, because some tokens open reasoning instead of a turn.
        opening = self.generation or ""
        openings = () if tokens_of(opening) else (opening,)
        # Exclude reasoning tags, which don't open or close a turn.
        return tokens_in(*_turn_markers(self), *openings, *self.stop) - _THOUGHT

    @property
    def control_sequences(self) -> frozenset[str]:
        """The family's control sequences, taken from its turn markers, tool format and generation prompt."""
        markers = (self.soa, self.tool_start, self.tool_args, self.tool_end, self.generation or "")
        described = frozenset(tokens_of(self.tools))
        # A tool description can contain placeholders such as <function-name>, which are not tokens.
        # A plain tag, such as <tools> or [TOOLS], counts as a token only if the description also contains its closing
        # tag.
        prose = {token for token in described if token[1] not in "|/" and f"{token[0]}/{token[1:]}" not in described}
        fixed = (*markers, *self.tool_form.literals)
        start = tokens_in(_call_start(self))
        return self.turn_sequences.union(described - prose, start, self.controls, *map(tokens_of, fixed))


def check_breakable(markers: Markers) -> None:
    """Refuse markers that open or close a turn, or open a tool call, but can't be neutralised in untrusted text.

    Markers that consist of white space are ignored. If a marker contains several lines or tokens, each of these is
    neutralised separately.

    Args:
        markers: The markers to check.

    Raises:
        SafetyError: A marker is a single character, or contains only characters that tokenizers drop.
    """
    texts = (*_turn_markers(markers), markers.generation or "", _call_start(markers))
    for name, marker in zip((*TURN_MARKERS, "generation", "tool_start"), texts, strict=True):
        if marker.strip() and not tokens_in(marker):
            raise SafetyError(
                f"marker {name} is {marker!r}, but a single character cannot be neutralised in untrusted text; use a "
                f"longer marker, such as '<|{name}|>', or call with_safety(\"off\") first to disable this check"
            )


def tokens_in(*markers: str) -> frozenset[str]:
    """Return each marker's special tokens, or its lines that can be neutralised if it contains no special tokens."""
    return frozenset(found for marker in markers for found in tokens_of(marker) or _plain_lines(marker))


def tokens_of(text: str) -> list[str]:
    """Return the special tokens and tags in a text, such as ``<|im_end|>`` and ``[INST]``."""
    return _TOKEN.findall(text)


def _plain_lines(marker: str) -> list[str]:
    return [line.strip() for line in marker.splitlines() if is_breakable(line)]


def _turn_markers(markers: Markers) -> tuple[str, ...]:
    """Return the values of the markers in ``TURN_MARKERS``."""
    around_human = markers.sos, markers.eos, markers.soh, markers.eoh
    return (*around_human, markers.soa, markers.eoa, markers.soe, markers.eoe, markers.bos)


def _call_start(markers: Markers) -> str:
    """Return the text that opens a tool call, without the beginning of a JSON object, which ordinary data contains."""
    start = (markers.tool_form.call or markers.tool_start).partition("{name}")[0]
    return JSON_CALL.split(start, maxsplit=1)[0]


def _are_texts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, str) for item in cast("Sequence[object]", value))


def _checked_name(name: object) -> str:
    if not isinstance(name, str):
        raise TemplateError(f"expected the name of a model or family, or Markers, not {type(name).__name__}")
    return name


@lru_cache
def _family(name: str) -> Markers:
    from lazyprompt.rendering.families import FAMILIES, tokens_of_calls, tokens_of_tokenizer  # noqa: PLC0415 - as above

    fields: dict[str, Any] = {**_FAMILY, **FAMILIES[name]}
    controls = (*fields.get("controls", ()), *tokens_of_calls(name), *tokens_of_tokenizer(name))
    fields |= {"family": name, "controls": controls}
    return Markers(**fields)


@lru_cache(maxsize=256)
def _of_model(name: str) -> Markers:
    from lazyprompt.rendering.families import FAMILIES, bare, known  # noqa: PLC0415 - as above

    if (exact := name.strip().lower()) in FAMILIES:
        return _family(exact)
    if (found := known(name)) is not None:
        if found.beyond:
            raise TemplateError(
                f"{name!r} is known, but markers cannot express its chat template: {found.beyond}; render the template "
                "itself with ChatTemplate.load(...), from the model's tokenizer directory or its GGUF file"
            )
        return _family(found.family)
    # A model name such as "qwn2.5-7b-instruct" is too long to resemble a family name, so try its beginning first.
    model = bare(name)
    beginning = re.match(r"[a-z]*-?[\d.]*", model)
    near = did_you_mean(beginning[0] if beginning else model, FAMILIES) or did_you_mean(model, FAMILIES)
    raise TemplateError(
        f"no model family is known for {name!r}{near}; for an online model, set the format of its provider "
        '(format="openai" or --format openai); for a local model, pass one of the families that '
        "`lazyprompt list families` shows, or custom markers: with_markers(Markers(...))"
    )


@lru_cache(maxsize=1)
def _known_sequences() -> frozenset[str]:
    from lazyprompt.rendering.families import FAMILIES, tokens_of_calls  # noqa: PLC0415 - as above

    return frozenset(
        text
        for name, fields in FAMILIES.items()
        for text in (*Markers(**{**_FAMILY, **fields}).control_sequences, *tokens_of_calls(name))
        if not text[0].isalnum()
    )


TURN_MARKERS = ("sos", "eos", "soh", "eoh", "soa", "eoa", "soe", "eoe", "bos")
_TRIMMED = frozenset(("system", "user", "assistant", "tool"))
_THOUGHT = frozenset(("<think>", "</think>"))

# The default marker fields of every model family. Line breaks separate the tools block from the system text.
_FAMILY: dict[str, Any] = {"exact": True, "tools": "\n\n" + Markers().tools.rstrip(), "tool_form": NO_FORM}

# The default markers, which ChatPrompter uses if no model is set.
DEFAULT_MARKERS = Markers(sos="<|start_system|>", eos="<|end_system|>", soh="<|Human|>:", soa="<|Assistant|>:")

# If the markers define no tool calls or results, use the Hermes format, which most open models support.
_HERMES_CALL = ('<tool_call>\n{"name": "', '", "arguments": ', "}\n</tool_call>")
PLAIN_RESULT = ("<tool_response>\n", "\n</tool_response>")
