"""The quick tests run without a network: a test that uses one fails, in its own process or another."""

import subprocess
import sys
from textwrap import indent

import pytest

from support.paths import TESTS

pytest_plugins = ["pytester"]

FORBIDDEN = {
    "a connection": "import socket; socket.create_connection(('192.0.2.1', 80), timeout=1)",
    "a connection of IPv6": "import socket; socket.socket(socket.AF_INET6).connect(('2001:db8::1', 80))",
    "a lookup": "import socket; socket.getaddrinfo('example.org', 80)",
    "a datagram": "import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 53))",
    "pip": "import subprocess, sys; subprocess.run([sys.executable, '-m', 'pip', '--version'])",
    "npm": "import subprocess; subprocess.run(['npm', '--version'])",
}
ALLOWED = """
import socket, subprocess, sys
with socket.create_server(("127.0.0.1", 0)) as server:
    socket.create_connection(("localhost", server.getsockname()[1])).close()
subprocess.run([sys.executable, "-c", "pass"], check=True)
"""


PLACES = {
    "directly": "{code}",
    "caught": "try:\n    {code}\nexcept OSError:\n    pass",
    "in another process": "import subprocess, sys\nsubprocess.run([sys.executable, '-c', {code!r}])",
}


def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tests: dict[str, str]) -> pytest.RunResult:
    """Run tests, each made of its name and its body, in a pytest of their own."""
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    functions = [f"def test_{name.replace(' ', '_')}():\n{indent(body, '    ')}\n" for name, body in tests.items()]
    pytester.makepyfile("import pytest\n" + "\n".join(functions))
    pytester.makeini("[pytest]\nmarkers = slow")
    return pytester.runpytest_subprocess("-p", "support.stay_offline", "-n", "0", "-rA")


@pytest.mark.slow
def test_quick_test_that_uses_the_network_fails(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    tests = {
        f"{kind} {place}": body.format(code=code) for kind, code in FORBIDDEN.items() for place, body in PLACES.items()
    }
    outcome = run(pytester, monkeypatch, tests)
    # Only an uncaught error fails the test itself; each of the tests has an error at its teardown.
    outcome.assert_outcomes(passed=12, failed=6, errors=len(tests))
    for kind, word in (("a connection", "connects to 192.0.2.1"), ("a lookup", "resolves the name 'example.org'")):
        assert outcome.stdout.str().count(f"a quick test {word}; mark it slow") >= len(PLACES), kind


@pytest.mark.slow
def test_quick_test_may_use_loopback_and_slow_test_may_start_pip(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = run(pytester, monkeypatch, {"loopback": ALLOWED})
    outcome.assert_outcomes(passed=1)
    pytester.makepyfile(f"import pytest\n@pytest.mark.slow\ndef test_pip():\n    {FORBIDDEN['pip']}\n")
    pytester.runpytest_subprocess("-p", "support.stay_offline", "-n", "0").assert_outcomes(passed=1)


def test_subprocesses_of_the_tests_load_the_network_guard() -> None:
    code = "import sys; print('sitecustomize' in sys.modules and sys.modules['sitecustomize'].__file__)"
    command = [sys.executable, "-c", code]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603 - it is fixed
    assert printed.replace("\\", "/").endswith("tests/support/offline/sitecustomize.py\n")
