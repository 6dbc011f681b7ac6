"""The progress bar of ``lazyprompt batch``, and the handling of signals that stop a run."""

from __future__ import annotations

import signal
import sys
import threading
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, TextIO

from lazyprompt._base.characters import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import FrameType

    from lazyprompt.batch.run import Progress


_SIGNALS = {
    signal.SIGINT: "interrupted by Ctrl-C",
    signal.SIGTERM: "terminated by SIGTERM",
}


@contextmanager
def progress_bar(name: str) -> Generator[Callable[[Progress], None] | None]:
    """Show a progress bar and yield the function that updates it; yield None if there is no terminal.

    Args:
        name: The name of the file that is being written.
    """
    stream: TextIO | None = sys.stderr  # None if the process was started without standard error
    if stream is None or not stream.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    with Bar(
        TextColumn("{task.description}", markup=False),
        BarColumn(20),
        TextColumn("{task.fields[state]}", markup=False),
        console=Console(stderr=True),
        transient=True,
    ) as bar:
        task = bar.add_task(visible(name), total=None, state="")

        def update(progress: Progress) -> None:
            bar.update(task, completed=progress.rows, total=progress.total, state=describe(progress))

        yield update


def describe(progress: Progress) -> str:
    """Describe the progress of a run as text."""
    of = "" if progress.total is None else f" of ~{progress.total:,}"
    parts = [f"{progress.rows:,}{of} rows", f"{progress.rate:,.0f} rows/s"]
    if progress.rejected:
        parts.append(f"{progress.rejected:,} rejected")
    if progress.tokens is not None:
        parts.append(f"{progress.tokens:,} tokens")
    if progress.eta is not None:
        parts.append(f"{timedelta(seconds=round(progress.eta))} left")
    return ", ".join(parts)


@contextmanager
def stop_signals() -> Generator[Callable[[], str | None]]:
    """Yield a function that returns the reason to stop, or None until a stop signal arrives.

    A second signal has its usual effect.
    """
    asked: list[str] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return

    def tell(number: int, _: FrameType | None) -> None:
        known = signal.Signals(number)
        asked.append(_SIGNALS[known])
        signal.signal(known, before[known])

    # Keep ignored signals ignored; a background job, for example, ignores SIGINT.
    found = {number: signal.getsignal(number) for number in _SIGNALS}
    before = {number: handler for number, handler in found.items() if handler not in (signal.SIG_IGN, None)}
    for number in before:
        signal.signal(number, tell)
    try:
        yield lambda: asked[0] if asked else None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
