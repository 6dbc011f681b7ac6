"""Secrets in a text, detected by their format or field name, and their masking."""

import pytest

from lazyprompt._base.secrets_in import masked, secrets_in

A, B = "A" * 40, "b1" * 20


def find_secrets(text: str, end: int | None = None) -> list[tuple[str, str, str, str]]:
    secrets = secrets_in(text, len(text) if end is None else end)
    assert all(each.length == each.end - each.begin for each in secrets)
    return [(text[each.begin : each.end], each.what, each.field, each.shown) for each in secrets]


@pytest.mark.parametrize(
    ("secret", "what"),
    [
        *((f"-----BEGIN RSA PRIVATE KEY-----\n{A}", "a private key"), (f"sk-ant-{A[:16]}", "a key of Anthropic")),
        *((f"sk-or-{A[:16]}", "a key of OpenRouter"), (f"sk-{B[:20]}", "a key of the form sk-")),
        *((f"{start}{A[:16]}", "an access key of AWS") for start in ("AKIA", "ASIA")),
        *((f"{start}{A[:30]}", "a token of GitHub") for start in ("ghp_", "github_pat_")),
        *((f"AIza{A[:30]}", "a key of Google"), (f"xai-{A[:20]}", "a key of xAI"), (f"gsk_{A[:20]}", "a key of Groq")),
        *((f"hf_{A[:20]}", "a token of Hugging Face"), (f"xoxb-{A[:10]}", "a token of Slack")),
    ],
)
def test_a_secret_is_detected_by_its_format(secret: str, what: str) -> None:
    assert find_secrets(f"use {secret}\n") == [(secret, what, "", secret[:3])]
    assert find_secrets(f"x{secret}") == []
    if not secret.startswith("-"):
        assert find_secrets(secret[:-1]) == []


@pytest.mark.parametrize(
    ("text", "secret", "field"),
    [
        *(("api_key: hunter22 ", "hunter22", "api_key"), ('- "Password":\t"a \\" b"', 'a \\" b', "Password")),
        *(("a:\n  secret: ' ab '", "ab", "secret"), ("{model: m, apikey: hunter22, b: 1}", "hunter22", "apikey")),
        ("client-secret: |-\n  line 1\n  line 2\nb: 1", "line 1\n  line 2", "client-secret"),
        ('x: "\\\ntoken\\\n"\nauth_token: ab"', "ab", "auth_token"),
        (f"bearer: a{'{b}'}c # d", "a{b}c", "bearer"),
        (f"{' ' * 1200}\npasswd: ab", "ab", "passwd"),
        *(
            (f"{name}: abc", "abc", name)
            for name in ["api-key", "api_secret", "access_key", "secret-key", "access_token"]
        ),
        *((f"{name}: abc", "abc", name) for name in ["authtoken", "private-key", "secret", "client_secret"]),
    ],
)
def test_a_secret_is_detected_by_its_field_name(text: str, secret: str, field: str) -> None:
    assert find_secrets(text) == [(secret, "a literal value", field, secret[: min(3, len(secret) // 3)])]


@pytest.mark.parametrize(
    "value",
    [
        *("${env:KEY}", "$KEY", "{{ key }}", "<key>", "***", "xxx", "…", "null", "~", "true", "String", "your-key"),
        *("your key", "change_me", "todo", "none", "[a]", "{a: b}", ""),
    ],
)
def test_a_placeholder_value_is_not_a_secret(value: str) -> None:
    assert find_secrets(f"api_key: {value}\nb: 1") == []


@pytest.mark.parametrize(
    "text", ["say password: ab", "my_password: ab", "password ab", "passwords: ab", "{a} secret: ab"]
)
def test_text_that_only_resembles_a_secret_field_is_ignored(text: str) -> None:
    assert find_secrets(text) == []


def test_field_names_are_searched_in_the_yaml_part_and_formats_in_the_whole_text() -> None:
    key = f"hf_{A[:20]}"
    text = f"secret: {key}\npassword: hunter22\n---\nsecret: hunter22\n{key}"
    known = (key, "a token of Hugging Face", "", "hf_")
    assert find_secrets(text, text.index("---")) == [known, ("hunter22", "a literal value", "password", "hu"), known]


def test_masking_keeps_line_and_column_positions() -> None:
    text = "a: 1\nsecret: |\n  hunter 22\\n\n  again\npassword: ab\n"
    secrets = secrets_in(text, len(text))
    assert masked(text, secrets) == "a: 1\nsecret: |\n  hunxxx xx\\x\n  xxxxx\npassword: xx\n"
    assert masked(text, []) == text
