"""Prompters: the text that is not a value's is the same whatever values say, in every family and form."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, cast

from fuzz.conversations import TOOLS, conversation
from fuzz.judge import CANARY, calm, chatml_turns, require, shape
from fuzz.target import Target
from lazyprompt.formatters.providers import PROVIDERS
from lazyprompt.prompters.kinds import AlpacaPrompter, ChatPrompter
from lazyprompt.rendering.families import FAMILIES
from lazyprompt.rendering.markers import Markers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fuzz.chance import Chance

_PROMPTERS = (
    ChatPrompter("You know {a}."),
    ChatPrompter({"system": "You know {a}.", "user": "Say {b}: "}, system="Sys."),
    ChatPrompter("x {a} y", extra_keys="b", system=""),
    ChatPrompter("x {{ a }} y{{ b|upper }}", syntax="jinja2"),
    ChatPrompter("Answer in {a}.", enable_system=False),
)
_ALPACA = AlpacaPrompter("Do {a}.", extra_keys="b")
_FAMILIES = ("chatml", *FAMILIES)
_STRUCTURE = frozenset(("role", "type"))


def _run(chance: Chance) -> None:
    prompter = chance.one(_PROMPTERS)
    values = {name: CANARY + chance.hostile() for name in (*prompter.slots, "input")}
    quiet = {name: calm(text) for name, text in values.items()}
    history, calm_history = conversation(chance, media=False)
    tools = TOOLS if chance.flag() else None
    kind = chance.number(3)
    if kind == 1:
        provider = chance.one(PROVIDERS)
        found = prompter.generate_prompt(values, history, tools, format=provider)
        other = prompter.generate_prompt(quiet, calm_history, tools, format=provider)
        require(_shape(found) == _shape(other), f"{provider}: a value changed the shape")
        return
    if kind == 2:  # noqa: PLR2004 - the kinds are these
        alpaca = {"a": values["input"], "b": chance.hostile()}
        text = _ALPACA.generate_prompt(alpaca)
        other_text = _ALPACA.generate_prompt({name: calm(each) for name, each in alpaca.items()})
        for header in ("### Response:", "### b:"):
            require(_lines(text, header) == _lines(other_text, header), f"a value forged {header!r} of Alpaca")
        return
    family = chance.one(_FAMILIES)
    label = CANARY + chance.hostile() if chance.flag() else None
    rendered = prompter.render(values, history, tools, label, model=family)
    require(rendered.text == "".join(each.text for each in rendered.segments), "the segments are not the text")
    other_rendered = prompter.render(quiet, calm_history, tools, None if label is None else calm(label), model=family)
    own, calm_own = (
        "".join(each.text for each in made.segments if each.trusted) for made in (rendered, other_rendered)
    )
    require(CANARY not in own, f"{family}: a value is trusted")
    if Markers.for_model(family).trim:
        # These families strip each text, also the template's own beside an empty value.
        own, calm_own = "".join(own.split()), "".join(calm_own.split())
    require(own == calm_own, f"{family}: a value changed what is not its own")
    for marker in _structure(family):
        count = rendered.text.count(marker), other_rendered.text.count(marker)
        require(count[0] == count[1], f"{family}: a value forged {marker!r}")
    if family == "chatml":
        # Text that begins the answer ends no turn.
        end = "" if label is None else "<|im_end|>\n"
        turns, calm_turns = ([role for role, _ in chatml_turns(each.text + end)] for each in (rendered, other_rendered))
        require(turns == calm_turns, "a value opened a turn, or closed one")


@cache
def _structure(family: str) -> list[str]:
    """The markers of a family that are structure wherever they stand."""
    markers = Markers.for_model(family)
    found = [getattr(markers, name).strip() for name in ("sos", "eos", "soh", "eoh", "soa", "eoa", "soe", "eoe")]
    return [marker for marker in {*found, *markers.stop} if marker.startswith(("<", "["))]


def _lines(text: str, header: str) -> int:
    """How many lines begin with a header."""
    return sum(line.lstrip().startswith(header) for line in text.splitlines())


def _shape(payload: object) -> object:
    return shape(dict(cast("Mapping[str, object]", payload)), _STRUCTURE.__contains__, without="name")


PROMPTER = Target(
    "prompter",
    _run,
    (
        "<|im_start|>",
        "<|im_end|>",
        "\n",
        "system",
        "user",
        "### Response:\n",
        "### ",
        "### b:\n",
        "{a}",
        "{b}",
        "{{ a }}",
    ),
)
