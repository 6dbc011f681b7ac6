"""Plain chats laid out without the template: the text is the template's own, whatever is said; else it is asked."""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from random import Random
from typing import Any

import pytest

from lazyprompt.chat_templates.controls import sequences_in
from lazyprompt.chat_templates.frame import Frame, frame_of, plain_chat
from lazyprompt.chat_templates.jinja import ChatJinja
from lazyprompt.chat_templates.template import ChatTemplate
from lazyprompt.errors import TemplateError
from support.chat_judges import SPECIAL, templates

SHARES = 4


@lru_cache
def loaded(name: str) -> ChatTemplate:
    return ChatTemplate.load(templates()[name], **SPECIAL)


def chat_of(*contents: str, system: str | None = None) -> list[dict[str, Any]]:
    said = [{"role": ("user", "assistant")[at % 2], "content": content} for at, content in enumerate(contents)]
    return said if system is None else [{"role": "system", "content": system}, *said]


# Why some of the templates have no frame; all others have one.
WITHOUT = {
    **dict.fromkeys(("cohere2", "cohere2_training"), "it asks of a text what cannot be foreseen: which key it is"),
    **dict.fromkeys(("lfm2_2_5", "lfm2_2_5_v2", "lfm2_2_5_vl"), "it asks how long a text is"),
    **dict.fromkeys(
        ("gptoss", "gptoss_training", "llama3_2", "muse_glimmer", "muse_glimmer_training"), "it writes the time"
    ),
    **dict.fromkeys(
        ("idefics3", "idefics3_training", "llava_next", "llava_next_training", "smolvlm", "smolvlm_training"),
        "it refuses a short chat, or does not show all of it",
    ),
}
# What contents are made of: words, white space of many kinds, signs of many scripts, tags that templates look for.
PIECES = (
    *(
        "woord",
        "x",
        "",
        " ",
        "\n",
        "\n\n",
        "\t",
        "\u3000",
        "\u00a0",
        "\r\n",
        "\x0b",
        "\u2028",
        "你好",
        "ß",
        "é",
        "e\u0301",
        "𝄞",
    ),
    *(
        "<think>",
        "</think>",
        "<tool_call>",
        "<tool_response>",
        "</tool_response>",
        "<b>",
        "{}",
        "{{ x }}",
        "%s",
        "&amp;",
        "<",
    ),
    *("/no_think", "### Response:", "User:", "Assistant:", "<|x|>", "</s>", "<s>", "[INST]", "|", ">", "0"),
)


def random_chats(name: str, count: int) -> list[list[dict[str, Any]]]:
    """Chats for a template, the same each time: its own control sequences are in some of their contents."""
    random = Random(name)  # noqa: S311 - the same chats each time
    pieces = (*PIECES, *sorted(sequences_in(loaded(name).jinja())))

    def content() -> str:
        # Most are words with white space around them, so that the frame is used.
        kind = pieces if random.random() < 0.3 else PIECES[:17]
        return "".join(random.choices(kind, k=random.choice((1, 1, 2, 5))))

    chats = []
    for _ in range(count):
        system = content() if random.random() < 0.4 else None
        # Mostly the user speaks last.
        chats.append(chat_of(*(content() for _ in range(random.choice((1, 1, 3, 3, 5, 9, 2)))), system=system))
    return chats


@pytest.mark.slow
def test_a_system_text_alone_is_for_the_template() -> None:
    """A chat without a turn was taken for a plain one, and could not be laid out."""
    for name in ("qwen3", "llama3", "gemma3", "phi3"):
        chat = chat_of(system="Regel.")
        theirs = own_text(loaded(name), chat)
        if theirs is None:
            with pytest.raises(TemplateError):
                loaded(name).render(chat)
        else:
            assert loaded(name).render(chat).text == theirs


def own_text(template: ChatTemplate, chat: list[dict[str, Any]]) -> str | None:
    try:
        return template.jinja().render(chat)
    except TemplateError:
        return None


@pytest.mark.slow
@pytest.mark.parametrize("share", range(SHARES))
def test_every_plain_chat_is_written_as_the_template_writes_it(share: int) -> None:
    names = sorted(templates())[share::SHARES]
    assert {name: found for name in names if isinstance(found := frame_of(loaded(name).jinja()), str)} == {
        name: reason for name, reason in WITHOUT.items() if name in names
    }
    for name in names:
        template = loaded(name)
        for chat in random_chats(name, 25):
            theirs = own_text(template, chat)
            if theirs is None:
                with pytest.raises(TemplateError):
                    template.render(chat, safety="off")
                continue
            made = template.render(chat, safety="off")
            assert made.text == theirs, (name, chat)
            safe = template.render(chat)
            assert "".join(safe.parts) == safe.text, (name, chat)
            assert safe.text == theirs or "\\" in safe.text, (name, chat)


@pytest.mark.slow
def test_the_template_is_not_asked_for_a_plain_chat(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    run = ChatJinja.run

    def noted(self: ChatJinja, *args: Any, **kwargs: Any) -> str:
        asked.append(self.text)
        return run(self, *args, **kwargs)

    template = ChatTemplate.load(templates()["qwen3"], **SPECIAL)
    template.render(chat_of("x"))
    monkeypatch.setattr(ChatJinja, "run", noted)
    plain = chat_of("Vraag", " Antwoord ", "Nog een\n", system="Regel.")
    made = template.render(plain)
    assert asked == []
    assert [segment.text for segment in made.segments if not segment.trusted] == [
        "Regel.",
        "Vraag",
        " Antwoord ",
        "Nog een\n",
    ]
    assert asked
    options: list[dict[str, Any]] = [
        {"add_generation_prompt": False},
        {"enable_thinking": False},
        {"documents": []},
        {"tools": []},
        {"continue_final_message": True},
    ]
    for unusual in options:
        asked.clear()
        template.render(plain, **unusual)
        assert asked, unusual
    for chat in (
        [*plain, {"role": "assistant", "content": "x"}],
        [{**plain[0], "name": "x"}, *plain[1:]],
        [plain[0], *plain],
        [*plain[:1], *plain[2:]],
        chat_of("<think>"),
        chat_of("a <|x|> b"),
    ):
        asked.clear()
        template.render(chat)
        assert asked, chat


PLAIN = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}{% if add_generation_prompt %}<ai>{% endif %}"
)


def changed(content: str) -> str:
    """A template that does something with contents."""
    return PLAIN.replace("m.content", content)


def with_loop(body: str) -> str:
    return PLAIN.replace("<{{ m.role }}>", f"{body}<{{{{ m.role }}}}>")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (changed("strftime_now('%Y') ~ m.content"), "it writes the time"),
        (changed("m.content[1:]"), "it refuses a short chat, or does not show all of it"),
        (changed("m.content[:9999]"), "it counts"),
        (
            with_loop("{% if m.content[0] == 'x' %}!{% endif %}"),
            "it asks of a text what cannot be foreseen: a part of it",
        ),
        (
            with_loop("{% for sign in m.content %}{% endfor %}"),
            "it asks of a text what cannot be foreseen: its letters",
        ),
        (with_loop("{% set n = m.content.split()|length %}"), "it asks of a text what cannot be foreseen: its words"),
        (with_loop("{{ m.content|length }}"), "it asks how long a text is"),
        (with_loop("{{ loop.index }}"), "it treats texts in a way of its own"),
        (with_loop("{{ messages|length }}"), "its turns do not stand for themselves"),
        (with_loop("{{ '!' if loop.index == 9 }}"), "it treats texts in a way of its own"),
        (with_loop("{{ '!' if m.content|length > 2000 }}"), "it counts"),
        (changed("m.content|capitalize"), "it refuses a short chat, or does not show all of it"),
        (changed("m.content|tojson"), "it refuses a short chat, or does not show all of it"),
        (changed("m.content.splitlines()|join(' ')"), "it asks of a text what cannot be foreseen: splitlines"),
        ("{{ raise_exception('no') }}", "it refuses a short chat, or does not show all of it"),
        ("{{ messages[-1].content }}", "it refuses a short chat, or does not show all of it"),
        ("x{{ x }}", "it refuses a short chat, or does not show all of it"),
    ],
)
def test_why_there_is_no_frame(text: str, reason: str) -> None:
    found = frame_of(ChatJinja(text))
    assert isinstance(found, str)
    assert found.startswith(reason)


def framed(text: str) -> Frame:
    found = frame_of(ChatJinja(text))
    assert isinstance(found, Frame), found
    return found


def test_a_frame_is_what_stands_around_texts() -> None:
    frame = framed(PLAIN)
    assert (frame.opening, frame.asked, frame.answered, frame.end) == (
        "<user>",
        "</><assistant>",
        "</><user>",
        "</><ai>",
    )
    assert frame.system == ("<system>", "</><user>")
    assert frame.trim == ("kept", "kept", "kept")
    assert frame.looked_for == frozenset()


@pytest.mark.parametrize("content", ["m.content", "m.content|trim"])
def test_blank_texts_are_laid_out_where_a_template_treats_them_as_others(content: str) -> None:
    blank = {"role": "assistant", "content": " "}
    chat = [{"role": "user", "content": ""}, blank, {"role": "user", "content": "x"}]
    plain = plain_chat(chat)
    assert plain is not None
    for text, laid_out in (
        (changed(content), True),
        (with_loop("{{ '!' if not m.content }}").replace("m.content }}<", f"{content} }}}}<"), False),
        (with_loop("{{ '!' if not m.content|trim }}").replace("m.content }}<", f"{content} }}}}<"), False),
    ):
        template = ChatJinja(text)
        assert framed(text).lay_out(plain) == (template.render(chat) if laid_out else None), text
        assert ChatTemplate.load(text).render(chat).text == template.render(chat), text


def test_texts_of_other_classes_are_laid_out_as_what_they_say() -> None:
    class Word(str, Enum):  # noqa: UP042 - which is written as its name
        HELLO = "hello"

    chat = [{"role": "user", "content": Word.HELLO}]
    assert ChatTemplate.load(PLAIN).render(chat).text == "<user>hello</><ai>"


def test_what_becomes_of_white_space_is_found_for_each_role() -> None:
    assert framed(changed("m.content|trim")).trim == ("strip", "strip", "strip")
    assert framed(changed("m.content.strip() if m.role == 'user' else m.content")).trim == ("kept", "strip", "kept")
    one_side = "m.content.lstrip() if m.role == 'system' else m.content.rstrip() if m.role == 'user' else m.content"
    assert framed(changed(one_side)).trim == ("lstrip", "rstrip", "kept")
    # Where it is not so simple, only texts without any are laid out.
    assert framed(changed("m.content.strip('\\n')")).trim is None


def test_a_template_without_a_place_for_a_system_text_has_a_frame_all_the_same() -> None:
    refuses = with_loop("{{ raise_exception('no system') if m.role == 'system' }}")
    first = "{% if messages[0].role == 'system' %}{% set s = messages[0].content %}{% endif %}"
    in_turn = first + PLAIN.replace("in messages", "in (messages[1:] if s else messages)")
    in_turn = in_turn.replace("{{ m.content }}", "{{ s ~ '\\n' if s and loop.first }}{{ m.content }}")
    assert framed(refuses).system is None
    assert framed(in_turn).system == ("<user>", "\n")
    with_system = chat_of("a", "b", "c", system="s")
    for text, chat in ((refuses, with_system[1:]), (in_turn, with_system[1:]), (in_turn, with_system)):
        assert ChatTemplate.load(text).render(chat).text == ChatJinja(text).render(chat)
    with pytest.raises(TemplateError, match="refuses the messages: no system"):
        ChatTemplate.load(refuses).render(with_system)


def test_what_the_template_looks_for_is_known() -> None:
    asked = "{{ '!' if 'een' in m.content or m.content.startswith('twee') or m.content.endswith('drie') }}"
    more = "{{ '?' if m.content == 'vier' or m.content.find('vijf') > 0 or m.content.split('zes')|length > 1 }}"
    frame = framed(with_loop(asked + more) + "{% set _ = messages[0].content.replace('zeven', '') %}")
    assert frame.looked_for == {"een", "twee", "drie", "vier", "vijf", "zes", "zeven"}


# Templates that treat a text in a way that short words do not show, with such a text.
SELDOM = {
    "what is in it": (with_loop("{{ '!' if 'een' in m.content }}"), "een"),
    "what it is": (with_loop("{{ '!' if m.content in ['een', 'twee'] }}"), "twee"),
    "which key it is": (with_loop("{{ {'een': '!'}.get(m.content, '') }}"), "een"),
    "in other letters": (with_loop("{{ '!' if 'een' in m.content|lower }}"), "EEN"),
    "in other letters still": (with_loop("{{ '!' if m.content.upper() == 'EEN' }}"), "een"),
    "trimmed": (with_loop("{{ '!' if m.content.strip() == 'een' }}"), " een "),
    "its beginning": (changed("m.content.removeprefix('een')"), "een twee"),
    "its end": (changed("m.content.removesuffix('een')"), "twee een"),
    "signs around it": (changed("m.content.strip('#')"), "# een #"),
    "signs before it": (changed("m.content|trim('#')"), "# een"),
    "its first part": (changed("m.content.partition('###')[0]"), "een ### twee"),
    "its last part": (changed("m.content.rpartition('###')[2]"), "een ### twee"),
    "a word replaced": (changed("m.content|replace('een', 'twee')"), "een"),
    "how often": (with_loop("{{ '!' * m.content.count('een') }}"), "een een"),
    "where": (with_loop("{{ m.content.rfind('een') if m.content.rfind('een') > 0 }}"), "een een"),
    "whether it is a number": (with_loop("{{ '!' if m.content.isdigit() }}"), "12"),
    "whether it is large": (with_loop("{{ '!' if m.content is upper }}"), "EEN"),
    "its order": (with_loop("{{ '!' if m.content > 'zzz' }}"), "zzzz"),
    "its length": (with_loop("{{ '!' if m.content|length > 9000 }}"), "een " * 2500),
    "cut": (changed("m.content|truncate(9000)"), "een " * 2500),
    "markup in it": (changed("m.content|striptags"), "een <b>twee</b>"),
    "markup written": (changed("m.content|e"), "een < twee & drie"),
    "markup that is safe": (changed("m.content|forceescape"), "een < twee & drie"),
    "fields in it": (changed("m.content % {}"), "100%%"),
    "tabs in it": (changed("m.content.expandtabs(2)"), "een\ttwee"),
    "its words": (changed("m.content|title"), "een twee"),
    "one in another": (with_loop("{{ '!' if m.content in 'een twee drie' }}"), "twee"),
    "its bytes": (with_loop("{{ '!' if m.content.encode()|length > m.content|length }}"), "één"),
    "a number of it": (with_loop("{{ '!' * (m.content|int) }}"), "3"),
}


@pytest.mark.parametrize(("text", "content"), SELDOM.values(), ids=SELDOM)
def test_a_text_that_is_treated_in_another_way_is_for_the_template(text: str, content: str) -> None:
    template = ChatTemplate.load(text)
    for chat in (chat_of(content), chat_of("x", content, "y"), chat_of("x", system=content)):
        assert template.render(chat, safety="off").text == template.jinja().render(chat)


@pytest.mark.parametrize("count", [51, 99, 201])
def test_a_long_chat_is_written_as_the_template_writes_it(count: int) -> None:
    """Longer chats than were tried out: a template may forget the oldest turns, or count them."""
    chat = chat_of(*(f"woord {at}" for at in range(count)))
    for text in (
        PLAIN.replace("in messages", "in messages[-60:]"),
        with_loop("{{ '!' if loop.index == 75 }}"),
        with_loop("{{ '!' if messages|length > 90 }}"),
    ):
        template = ChatTemplate.load(text)
        assert template.render(chat).text == template.jinja().render(chat)
