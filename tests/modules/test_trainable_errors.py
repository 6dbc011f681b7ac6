"""Each fault of an engine is one error, with the received part of the response."""

from typing import Any

import pytest

from lazyprompt import TrainableModule
from lazyprompt.errors import ModuleError
from lazyprompt.modules.clients._faults import FaultKind
from modules.local_models import call_error
from modules.online_scenes import WAYS, ask_by
from support.model_server.server import Answer, Cut, Drop, Ends, Malformed, Misbehaviour, ModelServer, Slow, Status


def make_module(server: ModelServer, **more: Any) -> TrainableModule:
    return TrainableModule("m", url=server.url("completions"), markers="chatml", **{"retries": 0, **more})


@pytest.mark.parametrize(
    ("fault", "kind", "streamed"),
    [
        (Status(500), "server", "server"),
        (Status(503), "server", "server"),
        (Status(429), "rate limit", "rate limit"),
        (Status(401), "key", "key"),
        (Status(400, "no such thing"), "request", "request"),
        (Drop(), "connection", "connection"),
        (Cut(), "connection", "cut"),
        (Ends(), "malformed", "cut"),
        (Malformed(), "malformed", "malformed"),
        (Malformed(page=True), "malformed", "malformed"),
    ],
)
@pytest.mark.parametrize("way", WAYS)
def test_server_fault_is_an_engine_error(fault: Misbehaviour, kind: FaultKind, streamed: FaultKind, way: str) -> None:
    with ModelServer(Answer("so far so good")) as server:
        module = make_module(server)
        server.faults = [fault]
        error = call_error(lambda: ask_by(way, module, "hi"))
        assert error.kind == (streamed if "stream" in way else kind)
        assert str(error).startswith("other: ")
        if isinstance(fault, Cut | Ends) and "stream" in way:
            assert "so far so good".startswith(str(error.partial))
            assert str(error.partial)
        server.faults = []
        assert ask_by(way, module, "hi") == "so far so good"
        module.close()


@pytest.mark.slow
def test_request_to_an_overloaded_engine_is_retried() -> None:
    with ModelServer() as server:
        server.faults = [Status(503, retry_after=0), Drop()]
        module = make_module(server, retries=2)
        assert module("hi") == "pong"
        module.close()
        assert len({str(seen.body) for seen in server.seen}) == 1
        assert len(server.seen) == 3


def test_engine_that_does_not_respond_is_a_timeout() -> None:
    with ModelServer() as server:
        server.faults = [Slow(first=30.0)]
        module = make_module(server, timeout=0.2)
        assert call_error(lambda: module("hi")).kind == "timeout"
        module.close()


@pytest.mark.parametrize("text", ["", " \n", "<think>hm", "<|im_end|>pong"])
@pytest.mark.parametrize("way", ["call", "stream"])
def test_empty_response_is_an_error(text: str, way: str) -> None:
    with ModelServer(Answer(text, finish="length" if "think" in text else "stop")) as server:
        module = make_module(server)
        with pytest.raises(ModuleError) as caught:
            ask_by(way, module, "hi")
        assert caught.value.kind == "empty"
        module.close()
