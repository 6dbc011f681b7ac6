"""What an engine may answer in the place of an answer: one error each, with what had come."""

from typing import Any

import pytest

from lazyprompt import TrainableModule
from lazyprompt.errors import EngineError, ModuleError
from lazyprompt.modules.clients._faults import FaultKind
from modules.local_models import call_error
from modules.online_scenes import ask_by
from support.model_server.server import Answer, Cut, Drop, Ends, Malformed, Misbehaviour, ModelServer, Slow, Status


def make_module(server: ModelServer, **more: Any) -> TrainableModule:
    given: dict[str, Any] = {"retries": 0, **more}
    return TrainableModule("m", url=server.url("completions"), markers="chatml", **given)


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
def test_each_fault_is_one_error(fault: Misbehaviour, kind: FaultKind, streamed: FaultKind) -> None:
    with ModelServer(Answer("so far so good")) as server:
        module = make_module(server)
        for way, expected in (("call", kind), ("stream", streamed), ("acall", kind), ("astream", streamed)):
            server.faults = [fault]
            error = call_error(lambda way=way: ask_by(way, module, "hi"))  # type: ignore[misc]  # bound now
            assert (error.kind, way) == (expected, way)
            assert str(error).startswith("other: ")
            if isinstance(fault, Cut | Ends) and "stream" in way:
                assert "so far so good".startswith(str(error.partial))
                assert str(error.partial)
            server.faults = []
            assert ask_by(way, module, "hi") == "so far so good"
        module.close()


@pytest.mark.slow
def test_an_engine_that_is_overloaded_is_asked_again() -> None:
    with ModelServer() as server:
        server.faults = [Status(503, retry_after=0), Drop()]
        module = make_module(server, retries=2)
        assert module("hi") == "pong"
        module.close()
        assert len({str(seen.body) for seen in server.seen}) == 1
        assert len(server.seen) == 3


def test_an_engine_that_says_nothing_for_long_is_given_up() -> None:
    with ModelServer() as server:
        server.faults = [Slow(first=30.0)]
        module = make_module(server, timeout=0.2)
        assert call_error(lambda: module("hi")).kind == "timeout"
        module.close()


@pytest.mark.parametrize("text", ["", " \n", "<think>hm", "<|im_end|>pong"])
def test_an_answer_that_says_nothing_is_an_error(text: str) -> None:
    with ModelServer(Answer(text, finish="length" if "think" in text else "stop")) as server:
        module = make_module(server)
        for way in ("call", "stream"):
            with pytest.raises((EngineError, ModuleError)) as told:
                ask_by(way, module, "hi")
            assert told.value.kind == "empty"
        module.close()
