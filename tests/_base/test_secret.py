"""Secrets are masked everywhere, and cannot be written by accident."""

import base64
import copy
import html
import json
import logging
import os
import pickle
import re
import textwrap
import traceback
from dataclasses import asdict, dataclass
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lazyprompt import Secret
from lazyprompt._base import secret as secrets

VALUE = "sk-never-shown"


@dataclass
class Held:
    key: Secret


@pytest.mark.parametrize(
    "shown",
    [
        repr(Secret(VALUE)),
        str(Secret(VALUE)),
        f"{Secret(VALUE)}",
        f"{Secret(VALUE)!r:>30}",
        f"{Secret(VALUE):>30}",
        "%s %r" % (Secret(VALUE), Secret(VALUE)),  # noqa: UP031 - one of the ways
        repr({"key": [Secret(VALUE)]}),
        repr(Held(Secret(VALUE))),
        repr(asdict(Held(Secret(VALUE)))),
    ],
)
def test_a_secret_is_displayed_as_asterisks(shown: str) -> None:
    assert "***" in shown
    assert VALUE not in shown


def test_errors_and_logs_do_not_show_the_secret(caplog: pytest.LogCaptureFixture) -> None:
    def failing(key: Secret) -> None:
        raise ValueError("wrong", key)

    with pytest.raises(ValueError, match="wrong") as caught:
        failing(Secret(VALUE))
    shown = "".join(traceback.TracebackException.from_exception(caught.value, capture_locals=True).format())
    logging.getLogger("x").warning("the key is %s, %r", Secret(VALUE), {"key": Secret(VALUE)})
    assert VALUE not in shown + caplog.text


def test_secrets_in_texts_are_masked() -> None:
    secret = Secret(VALUE)
    assert secret.hidden_in(f"no {VALUE}, and {VALUE}!") == "no ***, and ***!"
    assert secret.hidden_in("nothing") == "nothing"
    assert Secret("").hidden_in("all") == "all"
    assert Secret("abc").hidden_in("an abc of it") == "an abc of it"  # short keys occur in texts by chance
    assert Secret("abcd").hidden_in("an abcd of it") == "an *** of it"
    assert Secret("a%09%0a%0d%20").hidden_in("a%09\n%0a%0d%20") == "***"  # the escapes are part of the key


KEYS = st.text("ab/+=-_.~!#$%&'\"<>0189XYZk", min_size=12, max_size=60)
AROUND = st.binary(max_size=5)


@pytest.mark.slow
@given(KEYS, AROUND, AROUND, st.integers(1, 76))
@example('sk-"a/bc<d>&e', b"user:", b"", 8)
@example("000000000%09", b"", b"", 76)
@example("sk-0a-0d-09-20", b"", b"", 3)
@example("000%09000000", b"", b"", 3)
def test_escaped_encoded_or_wrapped_secrets_are_masked(key: str, before: bytes, behind: bytes, width: int) -> None:
    """Keys that a server quoted with escapes of JSON, URLs or HTML, in base64, or wrapped, were shown."""
    whole = base64.b64encode(before + key.encode() + behind).decode()
    safe = base64.urlsafe_b64encode(before + key.encode() + behind).decode()
    codes = [ord(each) for each in key]
    quoted = [
        json.dumps(key)[1:-1],
        json.dumps(json.dumps(key))[3:-3],
        *("".join(f"\\u{code:04X}" for code in codes), "".join(f"\\x{code:02x}" for code in codes)),
        quote(key, safe=""),
        "".join(f"%{code:02x}" for code in codes),
        quote("".join(f"%{code:02X}" for code in codes)),
        html.escape(key),
        "".join(f"&#{code};" for code in codes),
        "".join(f"&#x{code:X};" for code in codes),
        *(
            joint.join(key[at : at + width] for at in range(0, len(key), width))
            for joint in (" ", "\n", "\r\n\t", "\\n", "%0A", "%0d%0a")
            if not ("%0a" in joint.lower() and "%0a" in key.lower())  # ambiguous: part of the key or a wrap
        ),
    ]
    secret = Secret(key)
    for form in quoted:
        assert secret.hidden_in(f"[{form}]") == "[***]", form
    for encoded in (whole, safe, whole.rstrip("="), quote(whole, safe=""), textwrap.fill(whole, 76)):
        shown = secret.hidden_in(f"[{encoded}]")
        assert "***" in shown, encoded
        # The rest is the encoding of the neighbours.
        assert len(shown) <= len("[***]") + 4 * (len(before) + len(behind) + 2)


@pytest.mark.parametrize("text", ["\\" * 100_000, "%25" * 50_000, "s \n" * 50_000, "&amp;" * 40_000, "c2st" * 50_000])
def test_long_repetitive_texts_without_the_secret_are_unchanged(text: str) -> None:
    assert Secret("sk-never-shown").hidden_in(text) == text


@pytest.mark.slow
@given(st.text(), KEYS)
def test_texts_without_the_secret_are_unchanged(text: str, key: str) -> None:
    assert Secret(f"sk-{key}").hidden_in(text) == text


def test_secrets_with_the_same_value_are_equal() -> None:
    assert Secret(VALUE) == Secret(VALUE)
    assert hash(Secret(VALUE)) == hash(Secret(VALUE)) != hash(VALUE)
    assert Secret(VALUE) != Secret("other")
    assert Secret(VALUE) != VALUE == Secret(VALUE).reveal()


def test_a_secret_can_be_copied_but_not_pickled() -> None:
    secret = Secret(VALUE)
    assert copy.copy(secret) is secret
    assert copy.deepcopy({"key": secret})["key"] is secret
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError, match="a secret can.t be pickled; pass it again") as caught:
            pickle.dumps({"key": secret}, protocol)
        assert VALUE not in str(caught.value)
    with pytest.raises(TypeError):
        json.dumps(secret)
    with pytest.raises(TypeError):
        vars(secret)


@pytest.mark.parametrize("wrong", [None, 5, b"bytes", Secret(VALUE)])
def test_a_secret_that_is_not_a_string_is_refused_without_showing_its_value(wrong: object) -> None:
    with pytest.raises(TypeError, match="a secret must be a string, not") as caught:
        Secret(wrong)  # type: ignore[arg-type]  # that is the point
    assert VALUE not in str(caught.value)
    assert "5" not in str(caught.value)


@pytest.fixture
def text(monkeypatch: pytest.MonkeyPatch) -> secrets.SecretText:
    """A text with a variable that is set, and one with a default."""
    monkeypatch.setenv("KEY", VALUE)
    monkeypatch.delenv("GONE", raising=False)
    return secrets.looked_up("Bearer ${env:KEY} ${ENV:GONE:x}")


def test_a_text_with_environment_values_shows_only_its_reference(text: secrets.SecretText) -> None:
    assert (text.reveal(), text.reference) == (f"Bearer {VALUE} x", "Bearer ${env:KEY} ${ENV:GONE:x}")
    assert (str(text), f"{text:>4}", repr(text), text.values) == ("***", " ***", "'***'", (text.reveal(), VALUE))
    assert (text.is_hidden, secrets.SecretText(text.reference, text.reference).is_hidden) == (False, True)
    assert copy.copy(text) is copy.deepcopy([text])[0] is text
    data = pickle.dumps(text)
    assert VALUE.encode() not in data
    assert pickle.loads(data).reveal() == text.reveal()  # noqa: S301 - our own bytes


def test_secret_texts_in_json_can_be_shown_or_revealed(text: secrets.SecretText) -> None:
    def value(of: str, note: str = f"see {VALUE}", key: str = VALUE) -> dict[str, object]:
        return {"a": [of, note], key: 1, "b": {"c": of}, "d": None}

    assert secrets.shown(value(text)) == value(text.reference)
    assert secrets.shown(value(text), [text]) == value(text.reference, "see ***", "***")
    assert secrets.revealed(value(text)) == value(text.reveal())
    assert [*secrets.secrets_within(value(text))] == [text] * 2


@pytest.mark.parametrize(("text", "value"), [("A", "1"), ("A:x", "1"), ("E", ""), ("B:x:y", "x:y")])
def test_an_environment_variable_falls_back_to_its_default(text: str, value: str) -> None:
    assert secrets.variable(text, {"A": "1", "E": ""}) == value


@pytest.mark.parametrize(("text", "name", "advised"), [("B", "B", "B"), ("B:", "B", "B"), (":x", "", "X")])
def test_an_unset_environment_variable_without_default_is_an_error(text: str, name: str, advised: str) -> None:
    message = f"Environment variable '{name}' not set; set it or add a default: ${{env:{advised}:default}}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        secrets.variable(text, {"A": "1"})


def test_a_hidden_environment_maps_names_to_references(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", VALUE)
    assert dict(secrets.HiddenEnvironment(["KEY", "B"])) == {"KEY": "${env:KEY}", "B": "${env:B}"}
    assert dict(secrets.HiddenEnvironment()) == {name: f"${{env:{name}}}" for name in os.environ}
    assert (len(secrets.HiddenEnvironment()), secrets.HiddenEnvironment([]).get("KEY")) == (len(os.environ), None)


def test_a_url_with_a_password_is_masked() -> None:
    url = secrets.address_of("https://me:pass@a.example/b")
    assert (url, repr(url)) == ("https://me:pass@a.example/b", "'***'")
    assert copy.copy(url) is copy.deepcopy([url])[0] is url
    with pytest.raises(TypeError, match="a URL with a password can't be pickled"):
        pickle.dumps(url)
    for plain in ("https://a.example/me@b", "me@a.example", "/b"):
        assert type(secrets.address_of(plain)) is str
