"""Public parameters for a provider, a family and the like accept objects of the caller as well as names."""

import re

from support.paths import GOLDEN

# Parameters whose name is written into a request, a file or a message, so that they accept only text.
NAMES = {
    ("AnthropicTokenCounter", "model"),
    ("CallRecord", "model"),
    ("CallRecord", "source"),
    ("GeminiTokenCounter", "model"),
    ("Markers", "family"),
    ("OnlineChatModule", "model"),
    ("Profile", "source"),
    ("PromptFile", "model"),
    ("Source", "model"),
    ("TemplateSegment", "source"),
    ("ThinkingBlock", "provider"),
    # The methods of a profile, which formatters call with the name of a model.
    (".needs_thoughts", "model"),
    (".needs_user_last", "model"),
    (".takes_late_system", "model"),
    # The names of formats for training data.
    (".export", "form"),
    (".export_unpaired", "form"),
}
_OWNER = re.compile(r"(?:async |classmethod |class )*(\.?\w+)\(")
_NAMED = "provider|format|form|model|family|source|valid|rules|markers|engine|answers"
_TEXT_ONLY = re.compile(rf"\b({_NAMED}): str(?: \| None)?(?=[,) ])(?! \|)")


def test_provider_and_family_parameters_accept_objects_beside_names() -> None:
    found = {
        (owner[1], name)
        for line in (GOLDEN / "api.txt").read_text(encoding="utf-8").splitlines()
        if (owner := _OWNER.match(line.strip()))
        for name in _TEXT_ONLY.findall(line)
    }
    assert found == NAMES
