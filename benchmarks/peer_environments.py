"""The peers that are timed beside this library, each in an environment of its own, made once and kept."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple


class Peer(NamedTuple):
    """A library and how to get it.

    Attributes:
        name: Its name, as the registry has it.
        wants: What pip installs: the library, and what it needs but does not ask for, or not in the right version.
        script: What drives it, in ``benchmarks/speed_peers``.
        imports: The statement that loads what a prompt is made with.
    """

    name: str
    wants: tuple[str, ...]
    script: str
    imports: str


PEERS = (
    Peer(
        "langchain-core",
        ("langchain-core==1.7.2", "langchain-anthropic==1.7.7"),
        "drive_langchain.py",
        "from langchain_core.prompts import ChatPromptTemplate",
    ),
    Peer(
        "llama-index-core",
        ("llama-index-core==0.14.25",),
        "drive_llama_index.py",
        "from llama_index.core.prompts import ChatPromptTemplate",
    ),
    Peer(
        "haystack-ai",
        ("haystack-ai==3.4.0",),
        "drive_haystack.py",
        "from haystack.components.builders import ChatPromptBuilder",
    ),
    Peer("banks", ("banks==2.5.1",), "drive_banks.py", "from banks import Prompt"),
    Peer("prompty", ("prompty[jinja2,mustache]==2.1.0",), "drive_prompty.py", "import prompty"),
    Peer("dotpromptz", ("dotpromptz==0.2.0",), "drive_dotprompt.py", "import dotpromptz"),
    # It imports all of these, and breaks with version 2 of mcp.
    Peer(
        "agentscope",
        ("agentscope==1.0.21", "mcp<2", "greenlet", "tqdm"),
        "drive_agentscope.py",
        "from agentscope.formatter import OpenAIChatFormatter",
    ),
    Peer(
        "litellm",
        ("litellm==1.106.2",),
        "drive_litellm.py",
        "from litellm.litellm_core_utils.prompt_templates.factory import anthropic_messages_pt",
    ),
    Peer(
        "transformers",
        ("transformers==5.23.0", "jinja2"),
        "drive_transformers.py",
        "from transformers import PreTrainedTokenizerFast",
    ),
    Peer(
        "mistral-common",
        ("mistral-common==1.13.1",),
        "drive_mistral.py",
        "from mistral_common.tokens.tokenizers.mistral import MistralTokenizer",
    ),
    Peer("openai-harmony", ("openai-harmony==0.0.8",), "drive_harmony.py", "import openai_harmony"),
    Peer("lazyllm", ("lazyllm==1.4.0",), "drive_lazyllm.py", "from lazyllm import ChatPrompter"),
)

# What drives a peer needs these beside it: the timer, the counter of the trimming rows, and PyYAML's loader in C.
COMMON = ("pyperf>=2.9", "pyyaml", "tiktoken")


def default_folder() -> Path:
    """Where environments are kept where nothing else is said."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lazyprompt-benchmarks"


def environment(peer: Peer, folder: Path) -> Path:
    """The interpreter of a peer's environment, which is made where it is not there.

    Args:
        peer: The peer.
        folder: Where environments are kept.

    Raises:
        RuntimeError: It cannot be installed; the message is for the table.
    """
    wants = (*peer.wants, *COMMON)
    mark = hashlib.sha256("\0".join((sys.version, *wants)).encode()).hexdigest()[:12]
    place = folder / f"{peer.name}-{mark}"
    python, finished = place / "bin" / "python", place / "finished"
    if finished.exists():
        return python
    # What was begun and not finished is begun anew.
    shutil.rmtree(place, ignore_errors=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    for command in (
        [sys.executable, "-m", "venv", str(place)],
        [str(python), "-m", "pip", "install", "--quiet", *wants],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own commands
        if done.returncode:
            raise RuntimeError(f"cannot be installed here: {last_line(done.stderr)}")
    finished.touch()
    return python


def last_line(text: str) -> str:
    """The last line of what a program said."""
    return (text.strip().splitlines() or ["nothing was said"])[-1]
