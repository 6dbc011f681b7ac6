"""The ``lazyprompt studio`` command, which serves a local page that shows a prompt while you edit it."""

from __future__ import annotations

import errno
import os
import socket
import webbrowser
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Final

import click

from lazyprompt._base.characters import visible
from lazyprompt.cli.options import reference_options
from lazyprompt.cli.streams import WrongUseError, blaming
from lazyprompt.errors import missing_extra

if TYPE_CHECKING:
    from starlette.types import ASGIApp

DEFAULT_PORT: Final = 7317
_HOST: Final = "127.0.0.1"
# The time limit, in seconds, for pending requests at shutdown.
_GRACE_S: Final = 1


@click.command("studio")
@click.argument("place", default=".", metavar="[DIR|FILE]")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="N",
    help=f"The port; 0 means any free port.  [default: {DEFAULT_PORT}, or a free one]",
)
@click.option("--browser/--no-browser", default=True, help="Open the page in a browser.  [default: --browser]")
@reference_options
def command(*, place: str, port: int | None, browser: bool, params: dict[str, str], roots: tuple[str, ...]) -> None:
    r"""Edit prompts, and see what each model receives.

    DIR is a prompt library, and FILE is a single prompt file; the default is the current directory. The first line of
    output is the page's URL, which contains a secret token. Only this machine can open the page. The page shows the
    prompt for each model family and provider, the tokens in each slot, and the effect of hostile values. The page saves
    files unless another program has changed them. Nothing is loaded from the network. Ctrl-C stops the studio.

    \b
    Examples:
      lazyprompt studio prompts
      lazyprompt studio support/refund.prompty --no-browser
    """
    for package in ("starlette", "uvicorn"):
        if find_spec(package) is None:
            raise WrongUseError("studio", str(missing_extra(package, "studio")))
    from lazyprompt.studio.app import PageTokens, studio_app
    from lazyprompt.studio.looking import Looking
    from lazyprompt.studio.workspace import Workspace

    with blaming("DIR"):
        workspace = Workspace.of(Path(place or "."))
    looking = Looking(workspace, params, tuple(map(Path, roots)))
    # Ignore KeyboardInterrupt, because uvicorn raises the exception again after a clean shutdown.
    with suppress(KeyboardInterrupt), _listening(port) as listener:
        actual: int = listener.getsockname()[1]
        tokens = PageTokens.create()
        # The socket is already listening, so the URL works before the server starts.
        click.echo(f"http://{_HOST}:{actual}/?token={tokens.token}")
        taken = port is None and actual != DEFAULT_PORT
        elsewhere = f"port {DEFAULT_PORT} is in use, so another port was chosen; " if taken else ""
        click.echo(f"{elsewhere}{visible(str(workspace.root))}; press Ctrl-C to stop", err=True)
        if browser:
            # Use a thread, because webbrowser.open() blocks until a text-mode browser is closed.
            address = f"http://{_HOST}:{actual}/?ticket={tokens.ticket}"
            Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        _serve(studio_app(looking, tokens, actual), listener)


def _listening(port: int | None) -> socket.socket:
    """Listen on the loopback address; if the default port is in use, choose a free port."""
    try:
        return socket.create_server((_HOST, DEFAULT_PORT if port is None else port))
    except OSError as error:
        if port is None and error.errno == errno.EADDRINUSE:
            return _listening(0)
        # Python appends the address to the error message, so use the system's message instead.
        why = os.strerror(error.errno) if error.errno else str(error)
        advice = "" if port is None else "; omit this option to use a free port"
        raise WrongUseError("--port", f"{DEFAULT_PORT if port is None else port}: {why}{advice}") from error


def _serve(app: ASGIApp, listener: socket.socket) -> None:
    """Serve requests until the process ends."""
    import uvicorn

    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,  # the access log would contain the token
        date_header=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        ws="none",
        http="h11",
        loop="asyncio",
        timeout_graceful_shutdown=_GRACE_S,
    )
    uvicorn.Server(config).run(sockets=[listener])
