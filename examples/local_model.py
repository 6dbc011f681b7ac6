"""The same prompter on models of your own: a server of Ollama, a server of vLLM, or a GGUF file.

python -m pip install ".[ollama,openai]"                in a checkout; ".[local]" for a GGUF file
python examples/local_model.py                          with stand-ins for both servers
python examples/local_model.py ollama qwen3:8b          after: ollama pull qwen3:8b
python examples/local_model.py vllm Qwen/Qwen3-8B       after: vllm serve Qwen/Qwen3-8B
python examples/local_model.py small.gguf               starts llama.cpp, and stops it at the end
"""

import sys

from lazyprompt import ChatPrompter, OnlineChatModule, TrainableModule
from stand_in import exit_if_missing, model_server

PROMPTER = ChatPrompter("You are the help desk of a library. It opens at {opens}.", system="")
ASKED = {"opens": "9:30", "input": "When does the library open?"}


def ask(module: OnlineChatModule | TrainableModule, name: str) -> None:
    """Ask a model, and print its answer while it streams."""
    print(f"{name}: ", end="")
    stream = module.prompt(PROMPTER).stream(ASKED)
    for piece in stream:
        print(piece, end="", flush=True)
    print(f" ({stream.reply.finish})")


def stand_ins() -> None:
    """Ask both servers where there is none: they differ in their protocol, not in your program."""
    with model_server("The library opens at 9:30.", "The library opens at 9:30.") as address:
        ask(OnlineChatModule("ollama", model="qwen3:8b", base_url=address), "ollama")
        ask(OnlineChatModule("vllm", model="Qwen/Qwen3-8B", base_url=f"{address}/v1"), "vllm")


def main() -> None:
    """Ask the model that the command line names."""
    with exit_if_missing():
        match sys.argv[1:]:
            case []:
                stand_ins()
            case [("ollama" | "vllm") as server, model]:
                # They are looked for at localhost:11434 and localhost:8000; base_url= is another address.
                ask(OnlineChatModule(server, model=model), server)
            case [path] if path.endswith(".gguf"):
                with TrainableModule(path, max_tokens=100, temperature=0.0).start(context=2048) as module:
                    ask(module, path)
            case _:
                sys.exit(__doc__)


if __name__ == "__main__":
    main()
