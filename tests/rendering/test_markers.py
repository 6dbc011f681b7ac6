import pickle
from typing import Any

import pytest

from lazyprompt import Markers, TemplateError
from lazyprompt.rendering.markers import DEFAULT_MARKERS


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"sos": None}, "marker sos must be text, not NoneType"),
        ({"tool_end": 5}, "marker tool_end must be text, not int"),
        ({"stop": "</s>"}, "stop must be a list of strings"),
        ({"stop": [5]}, "stop"),
        ({"system": 5}, "system"),
        ({"system_place": "first"}, "unknown system_place 'first'"),
        ({"tools": "none"}, "tools marker must contain"),
        ({"trim": "user"}, "trim"),
        ({"trim": ("users",)}, "trim"),
    ],
)
def test_a_wrong_marker_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(TemplateError, match=message):
        Markers(**fields)


def test_markers_are_values() -> None:
    markers = Markers(sos="<s>", stop=["a"])  # type: ignore[arg-type]
    assert markers.stop == ("a",)
    assert markers == pickle.loads(pickle.dumps(markers))  # noqa: S301 - our own
    assert hash(markers) == hash(Markers(sos="<s>", stop=("a",)))
    with pytest.raises(AttributeError):
        markers.sos = "x"  # type: ignore[misc]


def test_evolve_changes_a_copy() -> None:
    markers = DEFAULT_MARKERS.evolve(soa="[A]")
    assert (markers.soa, DEFAULT_MARKERS.soa) == ("[A]", "<|Assistant|>:")
    with pytest.raises(TemplateError, match=r"no marker 'soo' \(did you mean"):
        DEFAULT_MARKERS.evolve(soo="x")


def test_the_tokens_of_markers_are_control_sequences_and_their_words_are_not() -> None:
    markers = Markers.for_model("chatml")
    assert markers.control_sequences == {"<|im_start|>", "<|im_end|>"}
    assert {"USER:", "ASSISTANT:"} <= Markers.for_model("vicuna").control_sequences
    assert "<think>" not in Markers.for_model("qwen3-nothink").turn_sequences
    assert {"<s>", "[INST]", "<|eot_id|>"} <= Markers.known_sequences()
    assert not any(text[0].isalnum() for text in Markers.known_sequences())
