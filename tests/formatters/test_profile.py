"""The default rules of a profile."""

import re
from dataclasses import asdict, fields
from typing import Any, cast

import pytest

from lazyprompt.errors import FormatError
from lazyprompt.formatters.profile import Breakpoints, HistoryLayout, HistoryStyle, Media, Profile

BARE = Profile(name="bare", form=cast("Any", None), source="https://a.example")
# The rules that are not off by default.
SET = {
    "url_media": {"image", "audio", "video", "file"},
    "calls_tools": True,
    "turns": True,
    "empty_text": True,
    "id_length": 64,
}


def test_profile_without_arguments_has_only_the_default_rules() -> None:
    rules = {each.name: getattr(BARE, each.name) for each in fields(Profile)}
    patterns = {name: rules.pop(name).pattern for name in ("ids", "tool_names")}
    assert patterns == {"ids": r"[^\x00-\x1f\x7f]{1,64}", "tool_names": "[a-zA-Z0-9_-]{1,64}"}
    assert {name: rule for name, rule in rules.items() if rule} == {
        "name": "bare",
        "source": "https://a.example",
        "thinking": "none",
        "system": "anywhere",
        **SET,
        "strict_tools": True,
        "trailing_space": True,
        "output_schemas": True,
    }


@pytest.mark.parametrize(
    ("rule", "defaults"),
    [
        (Media(("image/png",)), (("image/png",), True, True, (), False, False, False)),
        (HistoryLayout(), ("own", "\n", True, {})),
        (Breakpoints("key", {}, ("5m",)), ("key", {}, ("5m",), False, None, 4)),
    ],
)
def test_profile_rule_classes_have_the_documented_defaults(rule: Any, defaults: tuple[Any, ...]) -> None:
    assert tuple(asdict(rule).values()) == defaults


def test_history_layout_hash_ignores_its_changes() -> None:
    assert hash(HistoryLayout(changes={"system": "first"})) == hash(HistoryLayout())


@pytest.mark.parametrize(
    ("types", "media_type", "takes"),
    [(("image/png",), "image/png", True), (("image/png",), "image/gif", False), (("image/*",), "image/gif", True)],
)
def test_media_rule_accepts_mime_types_and_wildcards(types: tuple[str, ...], media_type: str, *, takes: bool) -> None:
    assert Media(types).takes(media_type) is takes


@pytest.mark.parametrize(
    ("model", "late", "thoughts", "user_last"),
    [(None, True, False, False), ("", True, True, True), ("new-1", False, True, True), ("old", True, True, True)],
)
def test_model_rule_matches_a_name_prefix(model: str | None, *, late: bool, thoughts: bool, user_last: bool) -> None:
    """An unknown model accepts late system text if the pattern matches no name at all."""
    some = BARE.but(late_system=re.compile("(?!new)"), thinks=re.compile(""), no_prefill=re.compile(""))
    assert some.takes_late_system(model) is late
    assert some.needs_thoughts(model) is thoughts
    assert some.needs_user_last(model) is user_last
    assert BARE.but(user_last=True).needs_user_last(model)
    assert not any(ask(model) for ask in (BARE.takes_late_system, BARE.needs_thoughts, BARE.needs_user_last))


def test_unknown_profile_field_is_refused() -> None:
    with pytest.raises(FormatError, match=r"^no field 'nme' \(did you mean 'name'\?\); available fields: name, form, "):
        BARE.but(nme="acme")


@pytest.mark.parametrize(("style", "media_last"), [("tags", False), ("conversation", True), ("dialogue", True)])
def test_media_come_last_in_every_history_style_except_tags(style: HistoryStyle, *, media_last: bool) -> None:
    own = HistoryLayout("host", media_last=not media_last)
    assert BARE.layout(style) == HistoryLayout(media_last=media_last)
    assert BARE.but(layouts={style: own}).layout(style) is own
