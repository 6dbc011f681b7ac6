"""Markers: a model family's texts around system text, turns, tool results and tool calls."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, cast, get_args

from lazyprompt._base.frozen import read_only
from lazyprompt._base.json import checked_text
from lazyprompt.errors import SafetyError, TemplateError, did_you_mean
from lazyprompt.rendering.tool_form import GENERAL_FORM, NO_FORM, ToolForm
from lazyprompt.safety.find import is_breakable

if TYPE_CHECKING:
    from collections.abc import Sequence

SystemPlace: TypeAlias = Literal["turn", "first_user", "last_user"]

# A token inside a marker: <…>, [… ], or the flowers of some families. The text between tokens is plain.
_TOKEN = re.compile(r"(?<!<)<++[^<>\s]++>++|\[/?[A-Z_0-9a-z]+\]|\[\|[a-z]+\|\]|✿[^✿\s]+✿")


@read_only
@dataclass(frozen=True, slots=True)
class Markers:
    """Markers around each part of a flat prompt; ``""`` for no marker.

    Args:
        sos: Start of system.
        eos: End of system.
        soh: Start of human.
        eoh: End of human.
        soa: Start of assistant.
        eoa: End of assistant.
        soe: Start of a tool's result (of the environment).
        eoe: End of a tool's result.
        tool_start: Text before the name in a tool call.
        tool_args: Text between the name and the arguments, which are JSON.
        tool_end: Text behind the arguments.
        stop: Texts at which an engine should stop, beside the model's end of text.
        system: The family's own system text; ``None`` if it has none, ``""`` if it must have none.
        bos: The beginning-of-text token.
        generation: The generation prompt, if it differs from ``soa``.
        tools: The description of the tools, with ``{tools}`` in place of their JSON.
        tool_join: Text between two tools, each as JSON; ``None`` writes one JSON list.
        result_join: Text between two results that answer one message; ``None`` writes each as a turn.
        exact: True if the markers contain all the spacing of the model's own template, so that nothing is added.
        system_place: The place of the system text in an exact layout: its own turn, or the first or last user turn.
        trim: The roles whose text the model's template strips: of ``system``, ``user``, ``assistant``, ``tool``.
        preamble: Text before the first system text in an exact layout, even if there is no system text.
        empty_system: True if an exact layout has a system turn even without a system text.
        controls: Further texts that the model reads as structure.
        family: The name of the family.
        tool_form: The form of tools, calls and results that the other markers cannot express.

    Raises:
        TemplateError: A marker is no text, or a role or place is unknown.
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
                raise TemplateError(f"marker {name} is a {type(value).__name__}; a marker is text, '' for none")
        if not _are_texts(self.stop):
            raise TemplateError(f"stop is a list of texts, not {self.stop!r}")
        checked_text(self.system, "the system text of the markers", TemplateError)
        object.__setattr__(self, "stop", tuple(self.stop))
        if not _are_texts(self.trim) or not _TRIMMED.issuperset(self.trim):
            raise TemplateError(f"trim {self.trim!r} is not a list of roles; known are {', '.join(sorted(_TRIMMED))}")
        object.__setattr__(self, "trim", tuple(self.trim))
        if self.system_place not in get_args(SystemPlace):
            raise TemplateError(f"system_place {self.system_place!r} is unknown; known are {get_args(SystemPlace)}")
        if self.tools.count("{tools}") != 1:
            raise TemplateError(f"tools must contain {{tools}} once, in place of their JSON, not {self.tools!r}")
        if not isinstance(cast("object", self.tool_form), ToolForm):
            raise TemplateError(f"tool_form is a {type(self.tool_form).__name__}; give a ToolForm")

    @classmethod
    def for_model(cls, name: str) -> Markers:
        """Return the markers of a model's family.

        Args:
            name: A model or family: ``Qwen2.5-7B-Instruct``, ``Qwen/Qwen2.5-7B-Instruct``, ``qwen2.5``.

        Returns:
            The family's markers.

        Raises:
            TemplateError: No family is known for the name; the message has the nearest, and how to pass your own.
        """
        return _of_model(_checked_name(name))

    @classmethod
    def families(cls) -> tuple[str, ...]:
        """Return the names of the known families."""
        from lazyprompt.rendering.families import FAMILIES  # noqa: PLC0415 - many prompts name no model

        return tuple(FAMILIES)

    @classmethod
    def known_sequences(cls) -> frozenset[str]:
        """Return the control sequences of all families together, for prompts whose model is unknown.

        Words such as ``User:`` and the tokens of a single tokenizer, such as ``<filename>``, are not among them: they
        are structure for one family only, and honest text contains them.
        """
        return _known_sequences()

    def evolve(self, **changes: object) -> Self:
        """Return a copy with some markers changed.

        Raises:
            TemplateError: There is no such marker.
        """
        known = [field.name for field in fields(self)]
        for name in changes:
            if name not in known:
                raise TemplateError(
                    f"there is no marker {name!r}{did_you_mean(name, known)}; known are {', '.join(known)}"
                )
        return replace(self, **changes)  # type: ignore[arg-type]  # __post_init__ checks them

    @property
    def call_pattern(self) -> str:
        """The pattern of a tool call; the pattern of Hermes if the markers have none."""
        own = self.tool_start, self.tool_args, self.tool_end
        start, between, end = own if self.tool_start else _HERMES_CALL
        return self.tool_form.call or f"{start}{{name}}{between}{{arguments}}{end}"

    @property
    def turn_sequences(self) -> frozenset[str]:
        """The texts that open or close a turn of this family."""
        # A generation prompt with tokens may contain tokens of a thought beside those of the turn's start.
        opening = self.generation or ""
        openings = () if tokens_of(opening) else (opening,)
        # Some templates put an empty thought into the turns of the past; a thought is no turn.
        return tokens_in(*_turn_markers(self), *openings, *self.stop) - _THOUGHT

    @property
    def control_sequences(self) -> frozenset[str]:
        """The texts that this family reads as structure: of turns, tools and generation."""
        markers = (self.soa, self.tool_start, self.tool_args, self.tool_end, self.generation or "")
        described = frozenset(tokens_of(self.tools))
        # The description of tools also contains prose, where a word such as <function-name> is not a token. A plain tag
        # counts only if it is closed somewhere.
        prose = {token for token in described if token[1] not in "|/" and f"</{token[1:]}" not in described}
        fixed = (*markers, *self.tool_form.literals)
        return self.turn_sequences.union(described - prose, self.controls, *map(tokens_of, fixed))


def check_breakable(markers: Markers) -> None:
    """Refuse turn markers that can't be neutralised in untrusted text.

    White space alone is not a marker. In a marker of several lines or tokens, each of them is neutralised.

    Args:
        markers: The markers.

    Raises:
        SafetyError: A marker is a single character, or nothing but characters that tokenizers drop.
    """
    texts = (*_turn_markers(markers), markers.generation or "")
    for name, marker in zip((*TURN_MARKERS, "generation"), texts, strict=True):
        if marker.strip() and not tokens_in(marker):
            raise SafetyError(
                f"marker {name} is {marker!r}: a single character cannot be neutralised in untrusted text; use a "
                f"longer one, such as '<|{name}|>', or call with_safety(\"off\") first, which checks no text"
            )


def tokens_in(*markers: str) -> frozenset[str]:
    """Return the tokens in markers, or the lines that can be broken of a marker without tokens."""
    return frozenset(found for marker in markers for found in tokens_of(marker) or _plain_lines(marker))


def tokens_of(text: str) -> list[str]:
    """Return the tokens in a text, such as ``<|im_end|>`` and ``[INST]``."""
    return _TOKEN.findall(text)


def _plain_lines(marker: str) -> list[str]:
    return [line.strip() for line in marker.splitlines() if is_breakable(line)]


def _turn_markers(markers: Markers) -> tuple[str, ...]:
    """Return the markers that ``TURN_MARKERS`` names."""
    around_human = markers.sos, markers.eos, markers.soh, markers.eoh
    return (*around_human, markers.soa, markers.eoa, markers.soe, markers.eoe, markers.bos)


def _are_texts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, str) for item in cast("Sequence[object]", value))


def _checked_name(name: object) -> str:
    if not isinstance(name, str):
        raise TemplateError(f"the name of a model is text, not a {type(name).__name__}")
    return name


@lru_cache
def _family(name: str) -> Markers:
    from lazyprompt.rendering.families import FAMILIES, tokens_of_calls, tokens_of_tokenizer  # noqa: PLC0415 - many prompts name none

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
                f"{name!r} is known, but markers cannot follow its chat template: {found.beyond}; render the template "
                "itself with ChatTemplate.load(...), out of the model's tokenizer directory or its GGUF file"
            )
        return _family(found.family)
    # A model's name is much longer than a family's, so only its beginning is compared.
    model = bare(name)
    beginning = re.match(r"[a-z]*-?[\d.]*", model)
    near = did_you_mean(beginning[0] if beginning else model, FAMILIES) or did_you_mean(model, FAMILIES)
    raise TemplateError(
        f"no model family is known for {name!r}{near}; for an online model give the form of its provider "
        '(format="openai"; --format openai); else see all families with `lazyprompt list families`, name the family '
        "itself, or give markers of your own: with_markers(Markers(...))"
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

# Defaults for all families. The description of tools follows the system text, so it begins on a new line.
_FAMILY: dict[str, Any] = {"exact": True, "tools": "\n\n" + Markers().tools.rstrip(), "tool_form": NO_FORM}

# The markers of ChatPrompter without a model.
DEFAULT_MARKERS = Markers(sos="<|start_system|>", eos="<|end_system|>", soh="<|Human|>:", soa="<|Assistant|>:")

# The form of calls and results without markers: Hermes', which most open models have seen.
_HERMES_CALL = ('<tool_call>\n{"name": "', '", "arguments": ', "}\n</tool_call>")
PLAIN_RESULT = ("<tool_response>\n", "\n</tool_response>")
