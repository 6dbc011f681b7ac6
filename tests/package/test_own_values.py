"""A value of your own goes wherever a name goes: public parameters for a provider or a family take values too."""

import re

from support.paths import GOLDEN

# The parameters that a name is written from, into a request, a file or a message, so that only text can be passed.
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


def test_no_parameter_for_a_provider_or_a_family_takes_only_a_name() -> None:
    found = {
        (owner[1], name)
        for line in (GOLDEN / "api.txt").read_text(encoding="utf-8").splitlines()
        if (owner := _OWNER.match(line.strip()))
        for name in _TEXT_ONLY.findall(line)
    }
    assert found == NAMES
