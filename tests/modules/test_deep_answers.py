"""A server whose answer is nested too deep for Python's reader of JSON, with any client."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lazyprompt import OnlineChatModule
from lazyprompt.errors import ModuleError
from lazyprompt.modules.sources import SOURCES
from modules.online_scenes import ways
from support.model_server.http import Script, ScriptServer
from support.serving import Serving

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("status", [200, 400])
@pytest.mark.parametrize("source", SOURCES)
def test_an_answer_that_is_nested_too_deep_is_an_error_of_the_module(source: str, status: int) -> None:
    def answer(*_: object) -> tuple[Script, Callable[[bool], None]]:
        return Script(status, "application/json", (b"[" * 100_000,)), lambda _: None

    with Serving(server := ScriptServer(answer)):
        url = f"http://127.0.0.1:{server.server_port}"
        module = OnlineChatModule(source, model="m", base_url=url, api_key="k", retries=0, timeout=10)
        for way in ways(module, "hi"):
            with pytest.raises(ModuleError):
                way()
        module.close()
