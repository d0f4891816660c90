"""A model of 10 kB for vLLM: a small Llama without weights (`--load-format dummy` makes some up)
and a tokenizer trained on a few sentences. What it says is noise; how it is served is real.
For llama.cpp's Gemma only a chat template, one that knows tools."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

TEXTS = (
    "The gateway asks an engine for an answer and passes it on as it comes.",
    "Every tenant has a share of the engine, and what one does not use the others may.",
    'Tools are called with JSON: {"name": "weather", "arguments": {"town": "Oslo"}}',
)
SPECIAL = ("<|begin|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
CONTEXT_TOKENS = 32_768
CHAT_TEMPLATE = (
    "{{ '<|begin|>' }}"
    "{% if tools %}{{ '<|system|>' + (tools | tojson) + '<|end|>' }}{% endif %}"
    "{% for m in messages %}"
    "{{ '<|' + m['role'] + '|>' }}{{ m['content'] if m['content'] else '' }}{{ '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
GEMMA_TEMPLATE = """\
{%- if tools %}<start_of_turn>user
You may call a function: {{ tools | tojson }}
Call one with <tool_call>{"name": "f", "arguments": {}}</tool_call><end_of_turn>
{% endif %}
{%- for m in messages %}
{{- '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' }}
{{- m.content if m.content else '' }}
{%- for call in m.tool_calls or [] %}
{{- '<tool_call>\\n' }}
{{- {"name": call.function.name, "arguments": call.function.arguments} | tojson }}
{{- '\\n</tool_call>' }}
{%- endfor %}
{{- '<end_of_turn>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}
"""


def write(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = train()
    tokenizer.save(str(folder / "tokenizer.json"))
    begin, end = tokenizer.token_to_id(SPECIAL[0]), tokenizer.token_to_id(SPECIAL[1])
    write_json(
        folder / "config.json",
        {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": 128,
            "intermediate_size": 256,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": CONTEXT_TOKENS,
            "vocab_size": tokenizer.get_vocab_size(),
            "bos_token_id": begin,
            "eos_token_id": end,
            "rms_norm_eps": 1e-5,
            "torch_dtype": "float32",
        },
    )
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": SPECIAL[0],
            "eos_token": SPECIAL[1],
            "chat_template": CHAT_TEMPLATE,
        },
    )
    return folder


def train() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=384,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


def write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=1))
