"""How hypothesis runs: without a clock, and in CI with the same examples each time."""

import os

import pytest
from hypothesis import settings

settings.register_profile("dev", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")

# Helpers are no test modules, but their asserts are to show values all the same.
pytest.register_assert_rewrite("cli_helpers", "tools_helpers")
