"""How hypothesis runs: without a clock, and in CI with the same examples each time."""

import os
from importlib.util import find_spec

import pytest
from hypothesis import settings

settings.register_profile("dev", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")

# Helpers are no test modules, but their asserts are to show values all the same.
pytest.register_assert_rewrite("cli_helpers", "tools_helpers")

# Tests that ask models through LiteLLM: it wants an older client of OpenAI than the judges of payloads do, so CI runs
# them in an environment of their own.
_OF_LITELLM = ("test_client_litellm", "test_online", "test_streams", "test_structured", "test_run_command")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if find_spec("litellm") is None:
        skip = pytest.mark.skip(reason="litellm is not installed here; .ci/run has an environment with it")
        for item in items:
            if item.path.stem.startswith(_OF_LITELLM) and "litellm" in item.nodeid:
                item.add_marker(skip)
