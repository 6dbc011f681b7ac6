"""The form of responses that a chat template shows: templates of real models, and short ones."""

import re

import pytest

from lazyprompt import ResponseParser
from lazyprompt.answers.forms import FORMS, form_in
from support.real_templates import package_templates as templates_of

# Package, names and form of real templates. Those that show neither tool calls nor reasoning have the form "hermes".
REAL = (
    ("trl", r"deepseek.*", "deepseek"),
    ("trl", r"(?:diffusion_gemma|gemma4).*", "gemma-4"),
    ("trl", r"glm4moe.*", "glm-4.5"),
    ("trl", r"gptoss.*", "harmony"),
    ("trl", r"lfm2.*", "lfm2"),
    ("trl", r"llama3_[12]", "llama"),
    ("trl", r"nemotron_3.*|qwen3_[568].*", "qwen-xml"),
    ("trl", r"qwen2_5.*|qwen3|qwen3_(?:training|vl.*|instruct.*)", "hermes"),
    ("trl", r"cohere.*|gemma|gemma3.*|gemma_training|idefics3.*|llama3|llama3_training|llava.*|phi3.*", "hermes"),
    ("xllamacpp", r"ByteDance-Seed-OSS", "seed-oss"),
    ("xllamacpp", r"CohereForAI-c4ai-command-r-plus-tool_use", "command-r"),
    ("xllamacpp", r"CohereForAI-c4ai-command-r7b.*", "command-r7b"),
    ("xllamacpp", r"GLM-4\..*", "glm-4.5"),
    ("xllamacpp", r".*Kimi-K2.*", "kimi-k2"),
    ("xllamacpp", r"LFM2-.*", "lfm2"),
    ("xllamacpp", r"MiniMax-M2", "minimax-m2"),
    ("xllamacpp", r"mistralai-.*|Mistral-.*|.*Devstral.*", "mistral"),
    ("xllamacpp", r"NVIDIA-Nemotron-Nano-v2", "nemotron-nano-2"),
    ("xllamacpp", r".*Hermes-[23].*|Qwen-.*|HuggingFaceTB-SmolLM3-3B|MiMo-VL", "hermes"),
    ("xllamacpp", r"Qwen3-Coder|Qwen3\.5-4B|.*Step.*|NVIDIA-Nemotron-3-.*", "qwen-xml"),
    ("xllamacpp", r".*DeepSeek.*|llama-cpp-deepseek-r1", "deepseek"),
    ("xllamacpp", r"fireworks-ai-llama-3-firefunction-v2", "phi-4-mini"),
    ("xllamacpp", r"ibm-granite.*", "granite"),
    ("xllamacpp", r"meta-llama-.*", "llama"),
    ("xllamacpp", r"openai-gpt-oss-120b", "harmony"),
    ("@huggingface/ollama-utils", r"exaone-deep:.*", "exaone-deep"),
    # They have the turns of exaone-deep, but tool calls as in hermes.
    ("@huggingface/ollama-utils", r"exaone3\.5:.*", "hermes"),
    ("@huggingface/ollama-utils", r"glm4:9b", "glm-4"),
    ("@huggingface/ollama-utils", r"phi4-mini.*", "phi-4-mini"),
    ("@huggingface/ollama-utils", r"command-(?:a|r7b).*", "command-r7b"),
    ("@huggingface/ollama-utils", r"llama(?:3\.[12]|4).*|nemotron:70b", "llama"),
    ("axolotl", r"exaone.*", "hermes"),
)


@pytest.mark.slow
@pytest.mark.parametrize(("package", "names", "form"), REAL)
def test_form_of_a_real_chat_template_is_detected(package: str, names: str, form: str) -> None:
    found = {name: form_in(text) for name, text in templates_of(package).items() if re.fullmatch(names, name)}
    assert found
    assert set(found.values()) == {form}, found


@pytest.mark.parametrize(
    ("template", "form"),
    [
        *(("{{ messages }}", "hermes"), ("", "hermes"), ("<tool_call>{{ call }}</tool_call>", "hermes")),
        *(("<tool_call>\n<function={{ name }}>", "qwen-xml"), ("<tool_call>{{ name }}<arg_key>", "glm-4.5")),
        *(("<|start_of_role|> ... <tool_call>", "granite"), ("[|endofturn|] ... <tool_call>", "hermes")),
        *(("[|assistant|]<thought>\n", "exaone-deep"), ("<|start|>assistant<|channel|>final", "harmony")),
        ("<|turn>model<|channel>thought", "hermes"),
    ],
)
def test_form_is_detected_from_the_markers_in_a_chat_template(template: str, form: str) -> None:
    assert form_in(template) == ResponseParser.form_in(template) == form
    assert form in FORMS


def test_a_template_without_markers_has_the_default_form() -> None:
    assert form_in("{{ messages }}", "llama") == "llama"
    assert form_in("[TOOL_CALLS]", "llama") == "mistral"
