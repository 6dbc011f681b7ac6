"""Each extra of the wheel, installed by itself in an empty environment: does it install, fit together, and do its work?

    python tests/release/extras.py dist [--but ray] [--only hf]

`dist` holds the wheel and the sdist. Both are installed without extras first. The extras are read from the wheel; `dev`
and `docs` are those that CI tests and builds the manual with, and left out. Needs `uv`, whose environments are links
into its cache.
"""

import argparse
import os
import subprocess
import sys
import time
from importlib.metadata import PathDistribution
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import Path as ZipPath

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.tiny_model import CHATML, write_model

_ASK = """\
from lazyprompt import OnlineChatModule
print(OnlineChatModule({source!r}, model={model!r}, api_key="a-key").payload("Hello")["{key}"])
"""


def _ask(source: str, model: str = "a-model", key: str = "messages") -> str:
    """A request that is made, and not sent; the client is connected for it."""
    return _ASK.format(source=source, model=model, key=key)


_GGUF = """\
from lazyprompt import ChatTemplate
print(ChatTemplate.load("model.gguf").render([{"role": "user", "content": "Hello"}]))
"""
_LOCAL = """\
from lazyprompt import TrainableModule
with TrainableModule("model.gguf", max_tokens=5, temperature=0.0).start() as model:
    print(model("Hello").usage["completion_tokens"])
"""
_HF = """\
from tokenizers import Tokenizer, models, pre_tokenizers
from lazyprompt import HuggingFaceTokenCounter
tokenizer = Tokenizer(models.WordLevel({"Hello": 0, "[UNK]": 1}, unk_token="[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer.save("tokenizer.json")
print(HuggingFaceTokenCounter("tokenizer.json").count_text("Hello Hello"))
"""
_PARQUET = """\
import pathlib, subprocess, sys
import pyarrow, pyarrow.parquet
pyarrow.parquet.write_table(pyarrow.table({"input": ["Hello"]}), "rows.parquet")
pathlib.Path("prompt.yaml").write_text("instruction: Be kind.")
command = ["-m", "lazyprompt", "batch", "prompt.yaml", "rows.parquet", "-o", "out.jsonl"]
subprocess.run([sys.executable, *command], check=True)
print(pathlib.Path("out.jsonl").read_text())
"""
_FAST = """\
import orjson
from lazyprompt.batch.forms import text_bytes
if text_bytes is not orjson.dumps:
    raise SystemExit("orjson is there, and not used")
print(text_bytes({"a": "b"}))
"""
_RAY = """\
import ray
from lazyprompt import ChatPrompter
data = ray.data.from_items([{"id": "1", "input": "Hello"}])
print(data.map_batches(**ChatPrompter("Be kind.").ray_map()).take_all())
"""
_STUDIO = """\
import pathlib, subprocess, sys, urllib.request
pathlib.Path("prompt.yaml").write_text("instruction: Be kind.")
command = [sys.executable, "-m", "lazyprompt", "studio", "prompt.yaml", "--no-browser", "--port", "0"]
with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as studio:
    print(urllib.request.urlopen(studio.stdout.readline().strip()).read(15))
    studio.terminate()
"""
_TEST = """\
from lazyprompt.testing.checks import answer_failures, make_check
checks = [make_check("answer", "json_schema", {"required": ["b"]})]
print(answer_failures("{}", checks, None)[0].message)
"""
_CORE = """\
import subprocess, sys
from lazyprompt import *
from lazyprompt.cli.main import COMMANDS
print(ChatPrompter("Be kind.").generate_prompt("Hello", model="qwen3"))
for command in COMMANDS:
    subprocess.run([sys.executable, "-m", "lazyprompt", command, "--help"], check=True, stdout=subprocess.DEVNULL)
"""
_IMAGES = """\
from lazyprompt import ApproximateTokenCounter
url = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"
content = [{"type": "image_url", "image_url": {"url": url}}]
print(ApproximateTokenCounter().count([{"role": "user", "content": content}]))
"""
_EDIT = """\
from lazyprompt import ChatPrompter, Prompty
print(Prompty.from_prompter(ChatPrompter("Be kind.")).with_fields(description="kind").text)
"""
# What an extra is for: a use of it that fails where it does not do its work.
USES = {
    "": _CORE,
    "openai": _ask("openai"),
    "anthropic": _ask("anthropic"),
    "google-genai": _ask("gemini", key="contents"),
    "ollama": _ask("ollama"),
    "hf": _HF + _GGUF,
    "local": _LOCAL,
    "images": _IMAGES,
    "edit": _EDIT,
    "batch": _PARQUET + _FAST,
    "ray": _RAY,
    "studio": _STUDIO,
    "test": _TEST,
}
# Everything at once does what each does.
_ALONE = frozenset({"ray", ""})
USES["all"] = "\n".join(use for extra, use in USES.items() if extra not in _ALONE)
_LEFT_OUT = frozenset({"ci", "dev", "docs"})


class ExtraError(Exception):
    """An extra does not do what it is for."""


def main() -> None:
    """Try them all; the first that fails ends it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("dist", type=Path)
    parser.add_argument("--but", action="append", default=[], metavar="EXTRA")
    parser.add_argument("--only", action="append", default=[], metavar="EXTRA")
    options = parser.parse_args()
    (wheel,), (sdist,) = (sorted(options.dist.resolve().glob(f"lazyprompt-*{end}")) for end in (".whl", ".tar.gz"))
    # What the installed metadata will say, before anything is installed.
    info = next(each for each in ZipPath(wheel).iterdir() if each.name.endswith(".dist-info"))
    extras = set(PathDistribution(info).metadata.get_all("Provides-Extra") or ())
    if unknown := extras - _LEFT_OUT - USES.keys():
        raise ExtraError(f"nothing is known of the extras {', '.join(sorted(unknown))}: say in USES what each is for")
    with TemporaryDirectory(prefix="lazyprompt-extras-") as folder:
        work = Path(folder)
        write_model(work / "model.gguf", {"default": CHATML})
        if not options.only:
            _try_extra(work, sdist, "", "the sdist")
            _try_extra(work, wheel, "", "the wheel")
        for extra in sorted(options.only or extras - _LEFT_OUT - {*options.but}):
            _try_extra(work, wheel, extra, f"[{extra}]")


def _try_extra(work: Path, artifact: Path, extra: str, name: str) -> None:
    """Install one in an environment of its own, and use it."""
    begun = time.monotonic()
    python = work / "venv" / "bin" / "python"
    what = f"lazyprompt{f'[{extra}]' if extra else ''} @ {artifact.as_uri()}"
    _run(name, work, "uv", "venv", "--quiet", "--clear", "--python", sys.executable, "venv")
    _run(name, work, "uv", "pip", "install", "--quiet", "--python", str(python), what)
    _run(name, work, "uv", "pip", "check", "--quiet", "--python", str(python))
    installed = time.monotonic()
    # All environments stand at one path: what several extras install is compiled once.
    isolated = (str(python), "-I", "-X", f"pycache_prefix={work / 'bytecode'}")
    output = _run(name, work, *isolated, "-c", USES[extra])
    if not output.strip():
        raise ExtraError(f"{name}: its use printed nothing")
    sys.stdout.write(f"{name}: installed in {installed - begun:.1f} s, used in {time.monotonic() - installed:.1f} s\n")
    sys.stdout.flush()


def _run(name: str, work: Path, *command: str) -> str:
    # A parent's PYTHONPATH would hide what is not installed.
    env = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(command, cwd=work, env=env, capture_output=True, text=True, timeout=600, check=False)  # noqa: S603 - ours
    if done.returncode:
        raise ExtraError(f"{name}: {' '.join(command[:10])} ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
