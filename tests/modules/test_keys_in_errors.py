"""A key is in no error: not in the locals of the package's frames, and not in messages of a server that quote it."""

from __future__ import annotations

import base64
import json
import traceback
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from lazyprompt import OnlineChatModule, Secret, TrainableModule
from lazyprompt.errors import LazyPromptError
from lazyprompt.modules.sources import Source
from modules.clients.helpers import raised_error
from modules.online_scenes import FEW, ways
from support.model_server.http import Script
from support.model_server.http import ScriptServer as Server
from support.serving import Serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

pytestmark = pytest.mark.slow
KEY = 'sk-kept+/0123456789"<x>'
CLIENTS = (*FEW, "vllm")
FAILURES = {
    "refused": Script(401, "application/json", (b'{"error": {"message": "wrong"}}',)),
    "half": Script(200, "application/json", (b'{"x',)),
    "page": Script(200, "text/html", (b"<p>",)),
    "null": Script(200, "application/json", (b"null",)),
    "late": Script(200, "application/json", (b"{}",), first=1.0),
    "lost": Script(0),
}
ECHOES = {
    "plain": KEY,
    "percent": quote(KEY, safe=""),
    "percent, small": "".join(f"%{ord(each):02x}" for each in KEY),
    "base64": base64.b64encode(f"user:{KEY}".encode()).decode(),
    "url-safe": base64.urlsafe_b64encode(KEY.encode()).decode(),
    "wrapped": "\n".join((KEY[:9], KEY[9:])),
    "HTML": "".join(f"&#{ord(each)};" for each in KEY),
}


def module(client: str, url: str, **settings: Any) -> Any:
    known = {"api_key": KEY, "retries": 0, "timeout": 10.0, **settings}
    if client == "vllm":
        return TrainableModule("m", engine="vllm", url=url, markers="chatml", **known)
    return OnlineChatModule(client, model="m", base_url=url, **known)


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error with all its causes and contexts."""
    left, seen = [error], set[int]()
    while left:
        each = left.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            yield each
            left += [each.__cause__, each.__context__]


def find_key(value: object, path: str, seen: set[int]) -> Iterator[str]:
    """The paths of a raw key in a value: in containers, in objects of the package, in their repr."""
    if id(value) in seen or isinstance(value, Secret):
        return
    seen.add(id(value))
    if KEY in (value if isinstance(value, str) else repr(value)):
        yield path
    parts: dict[str, object] = {}
    if isinstance(value, dict):
        parts = {f"[{name!r}]": part for name, part in value.items()}
    elif isinstance(value, list | tuple | set | frozenset):
        parts = {f"[{at}]": part for at, part in enumerate(value)}
    elif type(value).__module__.startswith("lazyprompt"):
        slots = [name for cls in type(value).__mro__ for name in getattr(cls, "__slots__", ())]
        names = {**getattr(value, "__dict__", {}), **{name: getattr(value, name, None) for name in slots}}
        parts = {f".{name}": part for name, part in names.items()}
    for name, part in parts.items():
        yield from find_key(part, path + name, seen)


def find_in_frames(error: BaseException) -> list[str]:
    """The locals of the package's frames that contain the key."""
    found: list[str] = []
    for each in chain(error):
        at: TracebackType | None = each.__traceback__
        while at is not None:
            frame, at = at.tb_frame, at.tb_next
            if str(frame.f_globals.get("__name__")).startswith("lazyprompt"):
                for name, value in frame.f_locals.items():
                    found += [f"{frame.f_code.co_qualname}: {path}" for path in find_key(value, name, set())]
    return found


@pytest.mark.parametrize("what", FAILURES)
@pytest.mark.parametrize("client", CLIENTS)
def test_traceback_frames_of_a_failed_call_hold_no_key(client: str, what: str) -> None:
    with Serving(server := Server(lambda *_: (FAILURES[what], lambda _: None))):
        late = {"timeout": 0.3} if what == "late" else {}
        asked = module(client, f"http://127.0.0.1:{server.server_port}", **late)
        for way in ways(asked, "hi"):
            error = raised_error(way)
            assert isinstance(error, LazyPromptError)
            assert find_in_frames(error) == []
        asked.close()


@pytest.mark.parametrize(
    "settings",
    [
        {"options": {"nonsense": 1}},
        {"options": {"api_key": "x"}},
        {"api_key": f"{KEY}\u00e9"},
        {"api_key": f"{KEY}\n{KEY}"},
        {"timeout": -1},
        {"retries": "many"},
        {"temprature": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("client", CLIENTS)
def test_traceback_frames_of_an_invalid_setting_hold_no_key(client: str, settings: dict[str, Any]) -> None:
    with Serving(server := Server(lambda *_: (FAILURES["refused"], lambda _: None))):
        error = raised_error(lambda: module(client, f"http://127.0.0.1:{server.server_port}", **settings)("hi"))
        assert find_in_frames(error) == []


@pytest.mark.parametrize("key", [f"{KEY}\nx", "schlüssel", "sk-tab\there"])
@pytest.mark.parametrize("client", CLIENTS)
def test_key_with_characters_invalid_in_a_header_is_rejected_and_not_shown(client: str, key: str) -> None:
    error = raised_error(lambda: module(client, "http://127.0.0.1:9", api_key=key)("hi"))
    assert "the API key contains characters that are invalid in a header" in str(error)
    assert key not in "".join(traceback.format_exception(error))


@pytest.mark.parametrize("client", CLIENTS)
def test_key_of_the_environment_is_not_sent_if_no_key_is_needed(client: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def note(path: str, headers: dict[str, str], body: bytes) -> tuple[Script, Callable[[bool], None]]:
        seen.append(f"{path} {headers} {body!r}")
        return FAILURES["refused"], lambda _: None

    for name in ("OPENAI", "ANTHROPIC", "GOOGLE", "GEMINI", "OLLAMA"):
        monkeypatch.setenv(f"{name}_API_KEY", KEY)
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", KEY)
    monkeypatch.setattr(Source, "key", lambda *_: None)
    with Serving(server := Server(note)):
        asked = module(client, f"http://127.0.0.1:{server.server_port}", api_key=None)
        for way in ways(asked, "hi"):
            raised_error(way)
        asked.close()
    assert len(seen) == 4
    assert KEY not in "".join(seen)


@pytest.mark.parametrize("status", [401, 400])
@pytest.mark.parametrize("form", ECHOES)
@pytest.mark.parametrize("client", CLIENTS)
def test_key_in_server_errors_is_masked(client: str, form: str, status: int, caplog: pytest.LogCaptureFixture) -> None:
    """A server, or a proxy before it, may quote the key as received or in another encoding."""
    message = f"the key {ECHOES[form]} is wrong"
    body = json.dumps({"error": {"message": message, "type": "x"}, "message": message, "code": "InvalidApiKey"})
    script = Script(401, "application/json", (body.encode(),), headers={"x-echo": quote(KEY)})
    if status == 400:
        script = Script(400, "text/plain", (message.encode(),))
    records: list[Any] = []
    with caplog.at_level("DEBUG"), Serving(server := Server(lambda *_: (script, lambda _: None))):
        asked = module(client, f"http://127.0.0.1:{server.server_port}", hooks=[records.append])
        for way in ways(asked, "hi"):
            error = raised_error(way)
            # Debug logs of the official clients are not the package's.
            logged = [each.getMessage() for each in caplog.records if each.name.startswith("lazyprompt")]
            shown = "".join((*traceback.format_exception(error), *logged))
            shown += "".join(f"{each.error!r} {each.error}" for each in records)
            assert ECHOES[form] not in shown.replace(quote(KEY), "")
            assert "is wrong" in str(error) or "***" in str(error)
        asked.close()
