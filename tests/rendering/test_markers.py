import pickle
from typing import Any

import pytest

from lazyprompt import Markers, SafetyError, TemplateError
from lazyprompt.rendering.markers import DEFAULT_MARKERS, TURN_MARKERS, check_breakable
from lazyprompt.rendering.tool_form import ToolForm

NO_TEXT = "; use '' for no marker"
ROLES = "trim must be a list of roles (assistant, system, tool, user), not "


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        *(({name: 5}, f"marker {name} must be text, not int{NO_TEXT}") for name in ("sos", "eos", "soh", "eoh", "bos")),
        *(({name: []}, f"marker {name} must be text, not list{NO_TEXT}") for name in ("soa", "eoa", "soe", "eoe")),
        *(
            ({name: 5}, f"marker {name} must be text, not int{NO_TEXT}")
            for name in ("tool_start", "tool_args", "tool_end")
        ),
        *(({name: None}, f"marker {name} must be text, not NoneType{NO_TEXT}") for name in ("tools", "preamble")),
        *(({"stop": stop}, f"stop must be a list of strings, not {stop!r}") for stop in ("</s>", [5])),
        ({"system": 5}, "the system text of the markers must be text, not int"),
        ({"system_place": "x"}, "unknown system_place 'x'; expected one of ('turn', 'first_user', 'last_user')"),
        *(
            ({"tools": t}, f"the tools marker must contain {{tools}} exactly once; got {t!r}")
            for t in ("", "{tools}" * 2)
        ),
        *(({"trim": trim}, f"{ROLES}{trim!r}") for trim in ("user", True, ("user", "human"))),
        ({"tool_form": "x"}, "tool_form must be a ToolForm, not str"),
    ],
)
def test_invalid_marker_is_rejected(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(TemplateError) as caught:
        Markers(**fields)
    assert str(caught.value) == message


def test_markers_are_immutable_hashable_and_picklable() -> None:
    markers = Markers(sos="<s>", stop=["a"])  # type: ignore[arg-type]
    assert markers.stop == ("a",)
    assert markers == pickle.loads(pickle.dumps(markers))  # noqa: S301 - our own
    assert hash(markers) == hash(Markers(sos="<s>", stop=("a",)))
    with pytest.raises(AttributeError):
        markers.sos = "x"  # type: ignore[misc]


def test_evolve_returns_a_changed_copy() -> None:
    markers = DEFAULT_MARKERS.evolve(soa="[A]")
    assert (markers.soa, DEFAULT_MARKERS.soa) == ("[A]", "<|Assistant|>:")
    with pytest.raises(
        TemplateError, match=r"^no marker 'soo' \(did you mean 'sos'\?\); available markers: sos, eos, "
    ):
        DEFAULT_MARKERS.evolve(soo="x")


@pytest.mark.parametrize(
    ("fields", "turns", "others"),
    [
        ({}, set(), set()),
        ({"sos": "System: ", "eoa": "a\n ---\n", "soh": " U"}, {"System:", "---"}, set()),
        (
            {"soa": "<a> Bot:", "eoe": "<<b>>[C]", "stop": ["[|d|]", "✿e✿"]},
            {"<a>", "<<b>>", "[C]", "[|d|]", "✿e✿"},
            set(),
        ),
        ({"generation": "Bot:"}, {"Bot:"}, set()),
        ({"generation": "<g>Bot:", "soa": "<think>"}, set(), {"<g>", "<think>"}),
        ({"tools": "<t> <a-b> <|c|> </d> [E] {tools} </t>"}, set(), {"<t>", "</t>", "<|c|>", "</d>"}),
        ({"tools": "[F] [G] {tools}[/G]"}, set(), {"[G]", "[/G]"}),
        ({"tool_start": "<s>x", "tool_args": "<m>", "tool_end": "</s>"}, set(), {"<s>", "<m>", "</s>"}),
        ({"controls": ("any text",), "tool_form": ToolForm(call="<c>{name}")}, set(), {"any text", "<c>"}),
    ],
)
def test_control_sequences_are_those_in_the_markers(fields: dict[str, Any], turns: set[str], others: set[str]) -> None:
    markers = Markers(**fields)
    assert markers.turn_sequences == turns
    assert markers.control_sequences == turns | others


HERMES = '<tool_call>\n{"name": "{name}", "arguments": {arguments}}\n</tool_call>'


@pytest.mark.parametrize(
    ("fields", "pattern"),
    [
        *(({}, HERMES), ({"tool_args": "a", "tool_end": "e"}, HERMES)),
        ({"tool_start": "s", "tool_end": "e"}, "s{name}{arguments}e"),
        ({"tool_start": "s", "tool_form": ToolForm(call="{name}!")}, "{name}!"),
    ],
)
def test_tool_call_pattern_is_that_of_the_markers_or_of_hermes(fields: dict[str, Any], pattern: str) -> None:
    assert Markers(**fields).call_pattern == pattern


@pytest.mark.parametrize("name", [*TURN_MARKERS, "generation"])
def test_marker_of_a_single_character_is_rejected(name: str) -> None:
    for fine in ("", " \n", "x:"):
        check_breakable(DEFAULT_MARKERS.evolve(**{name: fine}))
    with pytest.raises(SafetyError) as caught:
        check_breakable(DEFAULT_MARKERS.evolve(**{name: "x "}))
    assert str(caught.value) == (
        f"marker {name} is 'x ', but a single character cannot be neutralised in untrusted text; use a longer marker, "
        f"such as '<|{name}|>', or call " + 'with_safety("off") first to disable this check'
    )
