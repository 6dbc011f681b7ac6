"""A redirect to another origin gets neither the key nor the conversation, with any client."""

from collections.abc import Callable
from typing import Any

import pytest

from lazyprompt import OnlineChatModule, TrainableModule
from lazyprompt.errors import EngineError, ModuleError
from lazyprompt.modules.sources import SOURCES
from modules.online_scenes import ways
from support.model_server.http import Script, ScriptServer
from support.serving import Serving

KEY, ASKED = "sk-redirected-0123456789", "a word nobody else may read"
pytestmark = pytest.mark.slow
STATUSES = (301, 302, 303, 307, 308)
CLIENTS = (*(("source", name) for name in SOURCES), ("engine", "vllm"), ("engine", "ollama"))


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize(("kind", "name"), CLIENTS)
def test_no_client_follows_a_redirect(kind: str, name: str, status: int) -> None:
    seen: list[str] = []

    def elsewhere(path: str, headers: dict[str, str], body: bytes) -> tuple[Script, Callable[[bool], None]]:
        seen.append(f"{path} {headers} {body!r}")
        return Script(400, "application/json", (b'{"error": {"message": "no"}}',)), lambda _: None

    def first(path: str, *_: object) -> tuple[Script, Callable[[bool], None]]:
        to = {"Location": f"http://127.0.0.1:{other.server_port}{path}"}
        return Script(status, "text/plain", (b"moved",), headers=to), lambda _: None

    other, server = ScriptServer(elsewhere), ScriptServer(first)
    url, common = f"http://127.0.0.1:{server.server_port}", dict[str, Any](api_key=KEY, retries=0, timeout=10)
    told = f"the server redirects to http://127.0.0.1:{other.server_port}; redirects are not followed, because they"
    if kind == "source":
        module: Any = OnlineChatModule(name, model="m", base_url=url, **common)
    else:
        module = TrainableModule("m", engine=name, url=url, markers="chatml", **common)
    with Serving(other), Serving(server):
        for way in ways(module, ASKED):
            with pytest.raises((EngineError, ModuleError), match=told) as caught:
                way()
            assert caught.value.kind == "not found"
            assert KEY not in str(caught.value)
        module.close()
    assert seen == []
