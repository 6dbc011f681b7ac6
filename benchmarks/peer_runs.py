"""The peers, driven one after the other, each in its own environment."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, cast

from figures import PeerFigures
from peer_environments import environment, last_line

if TYPE_CHECKING:
    from peer_environments import Peer

HERE = Path(__file__).parent
# Peers that count all messages anew for each one that goes take minutes.
MOST_SECONDS = 1_800


def driven(peer: Peer, folder: Path, vocabularies: Path) -> PeerFigures:
    """What a peer does, in ratios to the floor.

    Args:
        peer: The peer.
        folder: Where environments are kept.
        vocabularies: Where tiktoken finds its vocabularies.

    Returns:
        Its figures; where it cannot be installed or does not run, a note that says so.
    """
    settings = {
        **os.environ,
        "PYTHONPATH": str(HERE),
        "PYTHONHASHSEED": "0",
        "TIKTOKEN_CACHE_DIR": str(vocabularies),
        # None of them is to ask the network for anything.
        "HF_HUB_OFFLINE": "1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    try:
        command = [str(environment(peer, folder)), str(HERE / "speed_peers" / peer.script), peer.imports]
        done = subprocess.run(  # noqa: S603 - our own script
            command, env=settings, capture_output=True, text=True, timeout=MOST_SECONDS, check=False
        )
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        return PeerFigures(version="", rows={}, cannot={"": str(error)}, notes={})
    if done.returncode:
        return PeerFigures(version="", rows={}, cannot={"": f"did not run: {last_line(done.stderr)}"}, notes={})
    return cast("PeerFigures", json.loads(done.stdout))
