"""The studio's server: which requests are accepted, and its responses."""

import asyncio
import errno
import json
import logging
import os
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from starlette.testclient import TestClient

from lazyprompt.studio.app import HEADERS, MAX_BODY, TYPES, Guard, PageTokens, studio_app
from lazyprompt.studio.looking import Looking
from lazyprompt.studio.workspace import Workspace

PORT = 7317
TOKENS = PageTokens("secret-token", "once")
HOST = f"127.0.0.1:{PORT}"
OURS = {"X-Studio-Token": TOKENS.token}
TEXT = "---\nname: x\ninputs:\n  who: {kind: string, required: true}\n---\nsystem:\nGreet {{who}}.\n"
LOOK = {"path": "x.prompty", "text": TEXT, "inputs": {"who": "Ann"}}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "x.prompty").write_text(TEXT)
    return tmp_path


@pytest.fixture
def client(root: Path) -> TestClient:
    app = studio_app(Looking(Workspace.of(root)), TOKENS, PORT)
    return TestClient(app, f"http://{HOST}", raise_server_exceptions=False, follow_redirects=False)


def get(client: TestClient, path: str, **headers: str) -> Any:
    return client.get(path, headers=OURS | headers)


def post(client: TestClient, name: str, body: object, **headers: str) -> Any:
    return client.post(f"/api/{name}", json=body, headers=OURS | headers)


def test_page_tokens_are_long_and_unique() -> None:
    made = [token for _ in range(50) for token in PageTokens.create()]
    assert len({*made}) == 100
    assert min(map(len, made)) >= 43  # 256 bits


@pytest.mark.parametrize("path", ["/", "/api/workspace", "/api/file?path=x.prompty", "/api/nothing", "/elsewhere"])
@pytest.mark.parametrize("token", [None, "", "secret-toke", "secret-token2", "é", "once"])
def test_a_request_without_the_valid_token_is_refused(client: TestClient, path: str, token: str | None) -> None:
    given = [] if token is None else [(b"X-Studio-Token", token.encode())]
    assert client.get(path, headers=given).status_code == 403
    query = "" if token is None else f"{'&' if '?' in path else '?'}token={token}"
    refused = client.get(f"{path}{query}")
    assert refused.status_code == 403
    assert refused.text.count("\n") == 1
    assert "lazyprompt studio" in refused.text


def test_a_token_in_the_url_opens_only_the_page(client: TestClient) -> None:
    # Histories and logs keep URLs, so the API does not accept the token from there.
    assert client.get(f"/?token={TOKENS.token}").status_code == 200
    assert client.get(f"/api/workspace?token={TOKENS.token}").status_code == 403
    assert client.get("/", headers=OURS).status_code == 403
    assert client.get(f"/?token={TOKENS.token}&token={TOKENS.token}").status_code == 403


def test_a_ticket_redirects_to_the_page_only_once(client: TestClient) -> None:
    assert client.get("/?ticket=twice").status_code == 403
    led = client.get("/?ticket=once")
    assert (led.status_code, led.headers["location"]) == (303, f"/?token={TOKENS.token}")
    assert client.get("/?ticket=once").status_code == 403
    assert client.get("/api/workspace", headers={"X-Studio-Token": "once"}).status_code == 403


@pytest.mark.parametrize(
    "host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:1", f"127.0.0.1.evil.example:{PORT}", ""]
)
@pytest.mark.parametrize("path", [f"/?token={TOKENS.token}", "/api/workspace", "/static/index.html"])
def test_a_request_with_another_host_header_is_refused(client: TestClient, host: str, path: str) -> None:
    assert get(client, path, Host=host).status_code == 403


@pytest.mark.parametrize("origin", ["http://evil.example", "null", f"https://{HOST}", f"http://{HOST}.evil.example"])
def test_a_request_with_another_origin_header_is_refused(client: TestClient, origin: str) -> None:
    assert post(client, "look", LOOK, Origin=origin).status_code == 403
    assert get(client, "/api/workspace", Origin=origin).status_code == 403
    assert get(client, "/static/index.html", Origin=origin).status_code == 403


def test_a_request_with_the_origin_of_the_studio_is_accepted(client: TestClient) -> None:
    assert post(client, "look", LOOK, Origin=f"http://{HOST}").status_code == 200
    assert get(client, "/api/workspace", Host=f"localhost:{PORT}", Origin=f"http://localhost:{PORT}").status_code == 200


def test_every_response_has_the_security_headers(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: Looking) -> float:
        return 1 / 0

    monkeypatch.setattr(Looking, "about", fails)
    answers: list[Any] = [
        client.get(f"/?token={TOKENS.token}"),
        client.get("/"),
        client.get("/?ticket=once"),
        client.get("/static/index.html"),
        client.get("/static/none.js"),
        get(client, "/api/workspace"),
        get(client, "/api/none"),
        get(client, "/api/look"),
        post(client, "look", LOOK),
        post(client, "look", {}),
    ]
    assert [each.status_code for each in answers] == [200, 403, 303, 200, 404, 500, 404, 405, 200, 400]
    for each in answers:
        assert {name: each.headers.get(name) for name in HEADERS} == dict(HEADERS)
        assert "set-cookie" not in each.headers
        assert "access-control-allow-origin" not in each.headers


def test_security_headers_and_content_types_have_the_expected_values() -> None:
    assert dict(TYPES) == {
        "html": "text/html; charset=utf-8",
        "css": "text/css; charset=utf-8",
        "js": "text/javascript; charset=utf-8",
        "json": "application/json",
    }
    assert HEADERS == {
        "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' data:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cross-Origin-Opener-Policy": "same-origin",
    }


def test_each_view_has_its_own_endpoint(client: TestClient) -> None:
    views = [get(client, f"/api/{name}?path=x.prompty") for name in ("workspace", "file", "versions")]
    views += [post(client, "look", LOOK), post(client, "diff", LOOK | {"other": "x.prompty"})]
    views.append(post(client, "check", {"path": "x.prompty", "text": "---\nname: ["}))
    assert [(view.status_code, view.headers["content-type"]) for view in views] == [(200, "application/json")] * 6
    keys = ["files", "hash", "versions", "look", "changes", "findings"]
    assert [key in view.json() for key, view in zip(keys, views, strict=True)] == [True] * 6
    assert views[-1].json()["findings"]


@pytest.mark.slow
def test_only_files_of_the_page_are_served_with_their_content_types(client: TestClient) -> None:
    known = [each.name for each in files("lazyprompt.studio").joinpath("static").iterdir()]
    # A file without a known type is not sent, and would be found here.
    assert "index.html" in known
    for name in known:
        sent = client.get(f"/static/{name}")
        assert (sent.status_code, sent.headers["content-type"]) == (200, TYPES[name.rpartition(".")[2]])
    for name in ("..%2fapp.py", "../app.py", "%2e%2e/app.py", "none.js", "", "index.html/", "INDEX.HTML%00"):
        assert client.get(f"/static/{name}").status_code in (403, 404)


def test_a_file_is_opened_rendered_and_saved_unless_it_changed_on_disk(client: TestClient, root: Path) -> None:
    assert get(client, "/api/workspace").json()["files"][0]["path"] == "x.prompty"
    begun = get(client, "/api/file?path=x.prompty").json()
    assert (begun["text"], begun["hash"]) == (TEXT, sha256(TEXT.encode()).hexdigest())
    seen = post(client, "look", LOOK).json()
    assert "Greet Ann." in seen["look"]["text"]
    saved = post(client, "save", {"path": "x.prompty", "text": "new 中\r\n", "hash": begun["hash"]})
    assert (saved.status_code, saved.json()) == (200, {"hash": sha256("new 中\r\n".encode()).hexdigest()})
    assert (root / "x.prompty").read_bytes() == "new 中\r\n".encode()
    refused = post(client, "save", {"path": "x.prompty", "text": "newer", "hash": begun["hash"]})
    assert refused.status_code == 409
    assert refused.json() == {
        "error": {"message": "x.prompty has changed on disk since it was opened"},
        "hash": saved.json()["hash"],
        "text": "new 中\r\n",
    }
    (root / "x.prompty").unlink()
    refused = post(client, "save", {"path": "x.prompty", "text": "newer", "hash": saved.json()["hash"]})
    assert (refused.status_code, refused.json()["hash"], refused.json()["text"]) == (409, None, None)
    assert post(client, "save", {"path": "x.prompty", "text": "newer", "hash": None}).status_code == 200


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("look", {**LOOK, "path": "../x.prompty"}),
        ("save", {"path": "../x.prompty", "text": "", "hash": None}),
        ("diff", {**LOOK, "other": "../x.prompty"}),
        ("diff", {**LOOK, "other": "none.prompty"}),
        ("diff", {**LOOK, "path": "../x.prompty", "other": "x.prompty"}),
        *((asked, None) for asked in ("file", "file?path=../x.prompty", "versions?path=x.md", "file?path=%ff")),
    ],
)
def test_a_path_that_is_not_a_workspace_file_gets_status_404(client: TestClient, name: str, body: object) -> None:
    answer = post(client, name, body) if body else get(client, f"/api/{name}")
    assert answer.status_code == 404
    assert answer.json()["error"]["message"]


def test_errors_in_a_prompt_are_returned_with_status_200(client: TestClient) -> None:
    answer = post(client, "look", LOOK | {"text": "---\nname: x\n---\nsystem:\n{{#if}}{% if %}\n"})
    assert (answer.status_code, answer.json()["error"]["line"]) == (200, 5)
    answer = post(client, "diff", LOOK | {"text": "---\nname: [", "other": "x.prompty"})
    assert answer.status_code == 200
    assert answer.json()["error"]["line"]


def test_an_invalid_request_gets_status_400_with_the_reason(client: TestClient) -> None:
    answer = client.post("/api/save", content=b'{"path": "x.prompty", "text": ""}', headers=OURS)
    assert (answer.status_code, answer.json()) == (400, {"error": {"message": "hash: Field required"}})


def test_the_guard_passes_lifespan_events_and_rejects_websockets() -> None:
    seen: list[str] = []

    async def app(scope: Any, _receive: object, _send: object) -> None:
        seen.append(scope["type"])

    guard: Any = Guard(app, TOKENS, PORT)
    asyncio.run(guard({"type": "lifespan"}, None, None))
    with pytest.raises(ValueError, match="expected an http request, not websocket"):
        asyncio.run(guard({"type": "websocket"}, None, None))
    assert seen == ["lifespan"]


@pytest.mark.slow
def test_a_request_body_beyond_the_limit_gets_status_413(client: TestClient) -> None:
    given: list[int] = []

    def pieces() -> Any:
        for number in range(100):
            given.append(number)
            yield b"x" * 1_000_000

    answer = client.post("/api/look", content=pieces(), headers=OURS)
    assert (answer.status_code, answer.headers["content-type"]) == (413, "application/json")
    assert client.post("/api/look", content=b"x" * (MAX_BODY + 1), headers=OURS).status_code == 413
    assert client.post("/api/look", content=b"x" * MAX_BODY, headers=OURS).status_code == 400


def test_a_disk_error_on_save_is_reported(client: TestClient, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    known = sha256(TEXT.encode()).hexdigest()
    answer = post(client, "save", {"path": "x.prompty", "text": "new", "hash": known})
    assert answer.status_code == 500
    assert answer.json() == {"error": {"message": "x.prompty cannot be written: No space left on device"}}
    assert (root / "x.prompty").read_text() == TEXT


def test_an_internal_error_is_reported_without_its_message(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(_: Looking) -> None:
        raise KeyError(TOKENS.token)

    monkeypatch.setattr(Looking, "about", fails)
    with caplog.at_level(logging.DEBUG):
        answer = get(client, "/api/workspace")
    assert answer.status_code == 500
    assert "KeyError" in answer.json()["error"]["message"]
    assert TOKENS.token not in answer.text


def test_a_slow_request_does_not_block_other_requests(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    began, go = Event(), Event()

    def slow(_: Looking) -> dict[str, object]:
        began.set()
        go.wait(10)
        return {}

    monkeypatch.setattr(Looking, "about", slow)
    done: list[int] = []
    with client:
        waiting = Thread(target=lambda: done.append(get(client, "/api/workspace").status_code))
        waiting.start()
        assert began.wait(10)
        assert post(client, "look", LOOK).status_code == 200
        assert done == []
        go.set()
        waiting.join(10)
    assert done == [200]


def test_an_environment_variable_that_is_not_utf8_can_be_sent(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Python represents such bytes as lone surrogates, which UTF-8 cannot encode.
    monkeypatch.setenv("STUDIO_ODD", os.fsdecode(b"a\xff"))
    text = "---\nname: x\ninputs:\n  who: {kind: string, default: '${env:STUDIO_ODD}'}\n---\nsystem:\n{{who}}\n"
    answer = post(client, "look", {"path": "x.prompty", "text": text})
    assert answer.status_code == 200
    assert json.loads(answer.content)
