import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyprompt.errors import PromptFileError
from lazyprompt.files.library.names import Range, Version

# The examples of semver.org, section 11, in ascending order.
ORDER = [
    *("1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta", "1.0.0-beta.2", "1.0.0-beta.11", "1.0.0-rc.1"),
    *("1.0.0", "2.0.0", "2.1.0", "2.1.1", "10.0.0"),
]
NUMBERS = st.integers(0, 3)
VERSIONS = st.builds(Version, st.tuples(NUMBERS, NUMBERS, NUMBERS), st.sampled_from([(), (), ("rc", "1"), ("0",)]))


def test_versions_are_ordered_as_in_semver() -> None:
    versions = [*map(Version.read, ORDER)]
    assert sorted(versions, reverse=True) == versions[::-1]


@pytest.mark.parametrize(("text", "expected"), [("2", "2.0.0"), ("1.2", "1.2.0"), ("1.2.3-rc.1+build.5", "1.2.3-rc.1")])
def test_missing_version_numbers_are_zero(text: str, expected: str) -> None:
    assert str(Version.read(text)) == expected


@pytest.mark.parametrize(
    "text", ["", "latest", "01.2.3", "1.2.3-01", "1.2.3.4", "v1.2.0", "V1", "1.2-rc.1", "1..2", "٣", "1.2.3\n"]
)
def test_invalid_version_is_an_error(text: str) -> None:
    with pytest.raises(PromptFileError) as caught:
        Version.read(text)
    near = f"; write it without the {text[0]!r}" if text in ("v1.2.0", "V1") else ""
    assert str(caught.value) == f"invalid version {text!r}; expected something like 1.2.0 or 2.0.0-rc.1{near}"


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("1.2.3", "1.2.3", "1.2.4 1.2.3-rc.1"),
        ("1.2", "1.2.0 1.2.9", "1.3.0 1.1.9 1.2.0-rc.1"),
        ("1.x", "1.0.0 1.9.9", "2.0.0 0.9.9"),
        ("*", "0.0.0 9.9.9", "1.0.0-rc.1"),
        ("<* || >x", "", "0.0.0 1.0.0"),
        ("^1.2", "1.2.0 1.9.0", "1.1.9 2.0.0 2.0.0-rc.1 1.3.0-rc.1"),
        ("^0.2.3", "0.2.3 0.2.9", "0.2.2 0.3.0"),
        ("^0.0.3", "0.0.3", "0.0.4"),
        ("^0", "0.0.0 0.9.0", "1.0.0"),
        ("^0.0", "0.0.0 0.0.9", "0.1.0"),
        ("~1.2", "1.2.0 1.2.9", "1.3.0"),
        ("~1", "1.0.0 1.9.0", "2.0.0"),
        ("~1.2.3", "1.2.3 1.2.9", "1.2.2 1.3.0"),
        (">=1 <2", "1.0.0 1.9.9", "2.0.0 0.9.9 2.0.0-rc.1"),
        (">1.2 <=2", "1.3.0 2.0.0 2.9.9", "1.2.5 3.0.0"),
        (">= 1.2.3", "1.2.3 9.0.0", "1.2.2"),
        ("1.0.0 || >=3", "1.0.0 3.1.0", "2.0.0"),
        ("^1.2.3-rc.1", "1.2.3-rc.1 1.2.3-rc.2 1.2.3 1.9.0", "1.2.3-beta 1.3.0-rc.1"),
        ("2.0.0-rc.1", "2.0.0-rc.1", "2.0.0 2.0.0-rc.2"),
        (" || ".join(f">=2.0.0-rc.1 {bound}" for bound in ("<2", "<=1", "^1")), "", "2.0.0-rc.1"),
        ("<2.0.0-rc.2", "2.0.0-rc.1 1.0.0", "2.0.0 2.0.0-rc.2"),
    ],
)
def test_range_contains_the_expected_versions(text: str, inside: str, outside: str) -> None:
    found = Range.read(text)
    assert [each for each in inside.split() if found.holds(Version.read(each)) is not True] == []
    assert [each for each in outside.split() if found.holds(Version.read(each)) is not False] == []


@pytest.mark.parametrize("text", ["", " ", "latest", ">=", "^", "1.2.3.4", "1 - 2", "||", ">=1<2", "1 || "])
def test_invalid_range_is_an_error(text: str) -> None:
    with pytest.raises(PromptFileError, match="invalid version or range"):
        Range.read(text)


@given(VERSIONS)
def test_version_round_trips_as_text_and_matches_itself_as_a_range(version: Version) -> None:
    assert Version.read(str(version)) == version
    assert Range.read(str(version)).holds(version)


@given(VERSIONS, VERSIONS)
def test_versions_have_a_total_order(a: Version, b: Version) -> None:
    assert [a < b, a == b, a > b].count(True) == 1
