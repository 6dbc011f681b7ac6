"""What a module adds to a call of the official client, against a server of our own that takes ten milliseconds.

    python benchmarks/module_calls.py            a table
    python benchmarks/module_calls.py --check    exit with 1 if a limit is exceeded
    python benchmarks/module_calls.py --write    measure three times and keep the figures; then run docs/make_speed.py

Bare calls and calls of a module take turns, so that a noisy machine disturbs both. What counts is the difference of the
medians, as a share of the ten milliseconds; and, for 500 calls at once in one event loop, how long the loop stands
still. The server is a process of its own: its threads would hold up ours.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter
from timeit import repeat
from typing import IO, TYPE_CHECKING, Any, cast

from figures import committed, keep

from lazyprompt import ChatPrompter, OnlineChatModule, TrainableModule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TESTS = Path(__file__).parents[1] / "tests"
# Serves until its input ends.
SERVE = f"""
import sys
sys.path.insert(0, {str(TESTS)!r})
from support.model_server.server import ModelServer, Slow
with ModelServer(judges=False) as server:
    server.faults = lambda _: Slow(first=float(sys.argv[2]))
    print(server.url(sys.argv[1]), flush=True)
    sys.stdin.read()
"""

CALLS = 300
CALL_SECONDS = 0.010
AT_ONCE = 500
# The share of a call that a module may add, and the milliseconds that it may block a loop.
SHARE, STALL_MS = 0.05, 50.0
# How many times as long as generate_prompt a payload may take.
PAYLOAD = 3.0
PROMPTER = ChatPrompter("Answer in {language}.")
INPUT = {"language": "Dutch", "input": "ping"}


@contextmanager
def serving(source: str) -> Iterator[str]:
    """The address of a server that plays a source and takes its time."""
    command = [sys.executable, "-c", SERVE, source, str(CALL_SECONDS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603 - our own
        yield cast("IO[str]", server.stdout).readline().strip()
        cast("IO[str]", server.stdin).close()


def bare_openai(url: str) -> Callable[[], object]:
    """A call of the official client, with the payload made before."""
    import openai  # noqa: PLC0415 - as for the others

    client = openai.OpenAI(base_url=url, api_key="k")
    messages = PROMPTER.generate_prompt(INPUT, return_dict=True)["messages"]
    return lambda: client.chat.completions.create(model="m", messages=messages)  # type: ignore[arg-type]


def bare_anthropic(url: str) -> Callable[[], object]:
    """The same for Anthropic."""
    import anthropic  # noqa: PLC0415 - as for the others

    client = anthropic.Anthropic(base_url=url, api_key="k")
    payload = cast("dict[str, Any]", PROMPTER.generate_prompt(INPUT, format="anthropic"))
    return lambda: client.messages.create(model="m", max_tokens=100, **payload)


def bare_gemini(url: str) -> Callable[[], object]:
    """The same for Gemini."""
    from google import genai  # noqa: PLC0415 - as for the others

    client = genai.Client(api_key="k", http_options={"base_url": url, "api_version": "v1beta"})
    payload = cast("Any", PROMPTER.generate_prompt(INPUT, format="gemini"))
    contents = payload.pop("contents")
    return lambda: client.models.generate_content(model="m", contents=contents, config=payload)


BARE: dict[str, Callable[[str], Callable[[], object]]] = {
    "openai": bare_openai,
    "anthropic": bare_anthropic,
    "gemini": bare_gemini,
}


def added(source: str) -> float:
    """Return what a module adds to the median call, as a share of ten milliseconds."""
    with serving(source) as url:
        bare = BARE[source](url)
        module = OnlineChatModule(source, model="m", base_url=url, api_key="k").prompt(PROMPTER)
        ways: tuple[Callable[[], object], ...] = (bare, lambda: module(INPUT))
        times: tuple[list[float], list[float]] = ([], [])
        for call in range(2 * CALLS):
            begun = perf_counter()
            ways[call % 2]()
            if call >= CALLS // 5:  # the first ones connect
                times[call % 2].append(perf_counter() - begun)
        module.close()
    return (median(times[1]) - median(times[0])) / CALL_SECONDS


def stall(source: str) -> float:
    """Return the longest block of an event loop with many calls under way, in seconds."""

    async def measured(url: str) -> float:
        module = OnlineChatModule(source, model="m", base_url=url, api_key="k").prompt(PROMPTER)
        await module.acall(INPUT)
        # A full collection looks through all that was loaded, the other clients too: 0.1 to 0.3 s, whoever asks for it.
        gc.collect()
        gc.freeze()
        longest = 0.0

        async def watch() -> None:
            nonlocal longest
            while True:
                begun = perf_counter()
                await asyncio.sleep(0.001)
                longest = max(longest, perf_counter() - begun - 0.001)

        watcher = asyncio.create_task(watch())
        await asyncio.gather(*(module.acall(INPUT) for _ in range(AT_ONCE)))
        watcher.cancel()
        gc.unfreeze()
        await module.aclose()
        return longest

    with serving(source) as url:
        return asyncio.run(measured(url))


def payload_ratios() -> dict[str, float]:
    """Return the time of a module's ``payload`` as a multiple of that of ``generate_prompt``, by the kind of module."""
    family = "Qwen2.5-7B-Instruct"
    local = TrainableModule(family, url="http://127.0.0.1:9").prompt(PROMPTER)
    pairs: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        family: (lambda: local.payload(INPUT), lambda: PROMPTER.generate_prompt(INPUT, model=family))
    }
    for source in BARE:
        online = OnlineChatModule(source, model="m", api_key="k").prompt(PROMPTER)
        pairs[source] = (
            lambda online=online: online.payload(INPUT),  # type: ignore[misc]  # mypy knows no types of a lambda's defaults
            lambda source=source: PROMPTER.generate_prompt(INPUT, format=source),  # type: ignore[misc]  # the same
        )
    return {
        name: min(repeat(ours, number=500)) / min(repeat(alone, number=500)) for name, (ours, alone) in pairs.items()
    }


def main() -> None:
    """Measure, print, write, check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--write", action="store_true", help="keep the figures")
    parser.add_argument("--slack", type=float, default=1.0, help="how many times its limit a figure may be")
    asked = parser.parse_args()
    runs = 3 if asked.write else 1
    shares = {source: sorted(round(added(source), 3) for _ in range(runs)) for source in BARE}
    stalls = {source: sorted(round(stall(source) * 1000, 1) for _ in range(runs)) for source in BARE}
    late: list[str] = []
    for what, found, most in (
        ("added to a call of 10 ms, as a share of it", shares, SHARE),
        (f"longest block of a loop with {AT_ONCE} calls, in ms", stalls, STALL_MS),
        ("payload, as a multiple of generate_prompt", {key: [each] for key, each in payload_ratios().items()}, PAYLOAD),
    ):
        for source, values in found.items():
            print(f"{source + ': ' + what:70} {values[0]:8.3f} (at most {most:g})")
            if values[0] > most * asked.slack:
                late.append(f"{source}: {what}")
    if asked.write:
        spans = {
            name: {source: [each[0], each[-1]] for source, each in found.items()}
            for name, found in (("added", shares), ("stall", stalls))
        }
        keep({**committed(), "modules": spans})
    if asked.check and late:
        sys.exit(f"too slow: {late}")


if __name__ == "__main__":
    main()
