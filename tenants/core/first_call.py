"""A key's first call, ready to paste: with curl, and with OpenAI's Python client."""

from __future__ import annotations

import json
import shlex

SAID = [{"role": "user", "content": "Hello"}]


def with_curl(base: str, key: str, model: str) -> str:
    """`base` ends with /v1."""
    body = json.dumps({"model": model, "messages": SAID}, ensure_ascii=False)
    return " \\\n  ".join(
        (
            f"curl {shlex.quote(f'{base}/chat/completions')}",
            f"-H {shlex.quote(f'Authorization: Bearer {key}')}",
            "-H 'Content-Type: application/json'",
            f"-d {shlex.quote(body)}",
        )
    )


def with_openai(base: str, key: str, model: str) -> str:
    return f"""\
from openai import OpenAI

client = OpenAI(base_url={_text(base)}, api_key={_text(key)})
answer = client.chat.completions.create(
    model={_text(model)},
    messages=[{{"role": "user", "content": "Hello"}}],
)
print(answer.choices[0].message.content)"""


def _text(value: str) -> str:
    """As Python writes it, in double quotes."""
    return json.dumps(value, ensure_ascii=False)
