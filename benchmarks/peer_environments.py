"""The peers that this library is compared with, each in an environment of its own that is made once and kept."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
# What a driver needs beside the peer: the counter of the trimming rows, and PyYAML's loader in C.
COMMON = ("pyyaml", "tiktoken")


class Peer(NamedTuple):
    """A library and how to install and drive it.

    Attributes:
        name: Its name in the registry.
        wants: The arguments of ``pip install``; none for this library itself.
        imports: The statement that loads its prompters, for the row of imports.
        seeds: The hash seeds with which it is attacked; none if it is only timed.
    """

    name: str
    wants: tuple[str, ...]
    imports: str
    seeds: tuple[str, ...] = ()

    @property
    def version(self) -> str:
        """The version that is installed; ``""`` for this library itself."""
        return self.wants[0].partition("==")[2] if self.wants else ""


_LITELLM = "from litellm.litellm_core_utils.prompt_templates.factory import anthropic_messages_pt"
# It imports all of these, and breaks with version 2 of mcp.
_AGENTSCOPE = ("agentscope==1.0.21", "mcp<2", "greenlet", "tqdm")
PEERS = (
    Peer("lazyprompt", (), "", ("0",)),
    # It fills slots in the order of a set, so that attacks depend on the hash seed.
    Peer("lazyllm", ("lazyllm==1.4.0",), "from lazyllm import ChatPrompter", ("0", "2")),
    Peer("prompt-poet", ("prompt-poet==0.0.52",), "import prompt_poet", ("0",)),
    Peer("agentscope", _AGENTSCOPE, "from agentscope.formatter import OpenAIChatFormatter", ("0",)),
    Peer("prompty", ("prompty[jinja2,mustache]==2.1.0",), "import prompty", ("0",)),
    Peer("langchain-core", ("langchain-core==1.7.2",), "from langchain_core.prompts import ChatPromptTemplate"),
    Peer("banks", ("banks==2.5.1",), "from banks import Prompt"),
    Peer("litellm", ("litellm==1.106.2",), _LITELLM),
    Peer("transformers", ("transformers==5.23.0", "jinja2"), "from transformers import PreTrainedTokenizerFast"),
)
TIMED = tuple(peer for peer in PEERS if peer.imports)
ATTACKED = tuple(peer for peer in PEERS if peer.seeds)


class PeerError(Exception):
    """A peer cannot be installed or does not run."""


def default_folder() -> Path:
    """Return the default folder for environments."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lazyprompt-benchmarks"


def driven(peer: Peer, folder: Path, *arguments: str, given: str = "", work: Path = HERE, **settings: str) -> str:
    """Run the driver of a peer and return its output.

    Args:
        peer: The peer.
        folder: The folder for environments.
        arguments: The driver's arguments.
        given: The driver's standard input.
        work: Its working directory.
        settings: Further variables of its environment.

    Raises:
        PeerError: The peer cannot be installed or does not run.
    """
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(HERE), *([] if peer.wants else [str(HERE.parent)])]),
        # None of them may use the network.
        "HF_HUB_OFFLINE": "1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        **settings,
    }
    command = [
        str(_environment(peer, folder)),
        str(HERE / "peers" / f"peer_{peer.name.replace('-', '_')}.py"),
        *arguments,
    ]
    done = subprocess.run(  # noqa: S603 - our own script
        command, env=variables, cwd=work, input=given, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise PeerError(f"did not run: {_last_line(done.stderr)}")
    return done.stdout


def _environment(peer: Peer, folder: Path) -> Path:
    """Return the interpreter of a peer's environment, and make the environment if it is missing."""
    if not peer.wants:
        return Path(sys.executable)
    wants = (*peer.wants, *COMMON)
    mark = hashlib.sha256("\0".join((sys.version, *wants)).encode()).hexdigest()[:12]
    place = folder / f"{peer.name}-{mark}"
    python, finished = place / "bin" / "python", place / "finished"
    if finished.exists():
        return python
    shutil.rmtree(place, ignore_errors=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    for command in (
        [sys.executable, "-m", "venv", str(place)],
        [str(python), "-m", "pip", "install", "--quiet", *wants],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own commands
        if done.returncode:
            raise PeerError(f"cannot be installed here: {_last_line(done.stderr)}")
    finished.touch()
    return python


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no output"])[-1]
