"""Mistral's official client, as the modules use it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lazyprompt.modules.clients import mistral
from modules.clients.contract import Contract
from support.client_scenes import KEY
from support.model_server.server import Cut, Drop, ModelServer, Status

if TYPE_CHECKING:
    from lazyprompt.modules.clients._base import OfficialClient, Settings

pytestmark = pytest.mark.slow  # a real client

SCHEMA: Any = {
    "type": "object",
    "properties": {"size": {"type": "integer"}},
    "required": ["size"],
    "additionalProperties": False,
}


class TestMistralClient(Contract):
    provider = "mistral"
    package = "mistralai"
    wire_key = f"Bearer {KEY}"

    def connect(self, settings: Settings) -> OfficialClient:
        return mistral.connect(settings)

    @pytest.mark.parametrize("fault", [Status(429, retry_after=0.01), Status(500), Status(503), Cut(), Drop()])
    def test_nothing_is_tried_again_but_by_the_module(self, server: ModelServer, fault: Any) -> None:
        server.faults = lambda _: fault
        with self.opened(server, retries=5) as client:
            assert client.retries_itself is False
            assert len(list(self.faults(client, self.request(client)))) == len(server.seen) == 4

    def test_the_server_says_when_to_try_again(self, server: ModelServer, client: OfficialClient) -> None:
        server.faults = lambda _: Status(429, retry_after=7.5)
        assert {fault.retry_after for fault in self.faults(client, self.request(client))} == {7.5}

    def test_parameters_and_schemas_have_mistrals_names(self, server: ModelServer, client: OfficialClient) -> None:
        common: dict[str, Any] = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 7, "stop": ["\n"], "seed": 1}
        request = self.request(client, **common)
        structured = client.structured(SCHEMA, "Size of it")
        client.send(request._replace(params={**request.params, **(structured or {})}))
        body = server.seen[0].body
        assert {key: body[key] for key in ("temperature", "top_p", "max_tokens", "stop")} == {
            key: value for key, value in common.items() if key != "seed"
        }
        assert (body["random_seed"], "seed" in body) == (1, False)
        wanted = {"name": "Size_of_it", "schema": SCHEMA, "strict": True}
        assert body["response_format"] == {"type": "json_schema", "json_schema": wanted}
