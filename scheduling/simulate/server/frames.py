"""The answers' bytes. Whatever doesn't change from token to token is made once per call: one
process writes thousands of frames a second."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from scheduling.simulate.server.answers import Text, ToolCall
from scheduling.simulate.server.call import Call, Event

DONE = "data: [DONE]\n\n"
FINGERPRINT = "simulated"


def quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


class Events(Protocol):
    """Server-sent events of one call, as its route writes them."""

    def opening(self) -> str: ...
    def token(self, event: Event) -> str: ...
    def closing(self, asked_usage: bool) -> str: ...
    def error(self, message: str) -> str: ...


class Frames:
    """Chat's and completions'. `running_usage` puts each choice's usage so far on every frame,
    with its own prompt, as vLLM's `continuous_usage_stats`."""

    object = ""
    no_content = ""

    def __init__(self, call: Call, running_usage: bool) -> None:
        self._call = call
        self._running_usage = running_usage
        lengths = [part.request.prompt_tokens for part in call.parts]
        each = len(call.answers) // max(1, len(lengths))
        self._prompt_tokens = [length for length in lengths for _ in range(each)]
        self._head = (
            f'data: {{"id":{quoted(call.id)},"object":"{self.object}","created":{call.created},'
            f'"model":{quoted(call.model)},"system_fingerprint":"{FINGERPRINT}","choices":['
        )

    def opening(self) -> str:
        """What comes before the first token."""
        return ""

    def token(self, event: Event) -> str:
        choice, tokens, ended = event
        content = self._content(choice, tokens) if tokens else self.no_content
        return self._frame(choice, tokens, content, ended)

    def closing(self, asked_usage: bool) -> str:
        """What comes after the last token."""
        if not asked_usage:
            return DONE
        usage = msgspec.json.encode(self._call.usage()).decode()
        return f'{self._head}],"usage":{usage}}}\n\n{DONE}'

    def error(self, message: str) -> str:
        """The end of a stream that fails."""
        error = {"message": message, "type": "InternalServerError", "param": None, "code": 500}
        return f"data: {msgspec.json.encode({'error': error}).decode()}\n\n{DONE}"

    def _content(self, choice: int, tokens: int) -> str:
        raise NotImplementedError

    def _frame(self, choice: int, tokens: int, content: str, ended: bool) -> str:
        finish = f'"{self._call.answers[choice].finish}"' if ended else "null"
        frame = (
            f'{self._head}{{"index":{choice},{content},"logprobs":null,"finish_reason":{finish}}}]'
        )
        if not self._running_usage:
            return frame + "}\n\n"
        prompt = self._prompt_tokens[choice]
        return (
            f'{frame},"usage":{{"prompt_tokens":{prompt},'
            f'"total_tokens":{prompt + tokens},"completion_tokens":{tokens}}}}}\n\n'
        )


class ChatFrames(Frames):
    object = "chat.completion.chunk"
    no_content = '"delta":{"content":""}'

    def opening(self) -> str:
        role = '"delta":{"role":"assistant","content":""}'
        return "".join(self._frame(i, 0, role, False) for i in range(len(self._call.answers)))

    def _content(self, choice: int, tokens: int) -> str:
        answer = self._call.answers[choice]
        if isinstance(answer, Text):
            return f'"delta":{{"content":{quoted(answer.prose.piece(tokens - 1))}}}'
        return f'"delta":{{"tool_calls":[{_tool_delta(answer, tokens)}]}}'


class TextFrames(Frames):
    object = "text_completion"
    no_content = '"text":""'

    def _content(self, choice: int, tokens: int) -> str:
        answer = self._call.answers[choice]
        assert isinstance(answer, Text), "this route knows no tools"
        return f'"text":"{answer.prose.piece(tokens - 1)}"'


def _tool_delta(answer: ToolCall, tokens: int) -> str:
    if tokens > 1:
        return f'{{"index":0,"function":{{"arguments":{quoted(answer.piece(tokens - 1))}}}}}'
    return (
        f'{{"index":0,"id":"{answer.id}","type":"function",'
        f'"function":{{"name":{quoted(answer.name)},"arguments":""}}}}'
    )


def chat_body(call: Call, asked: Any) -> bytes:
    return _body(call, "chat.completion", [_message(call, i) for i in range(len(call.answers))])


def text_body(call: Call, asked: Any) -> bytes:
    return _body(call, "text_completion", [_text(call, i) for i in range(len(call.answers))])


def _body(call: Call, kind: str, choices: list[dict[str, Any]]) -> bytes:
    answer: dict[str, Any] = {
        "id": call.id,
        "object": kind,
        "created": call.created,
        "model": call.model,
        "choices": choices,
        "system_fingerprint": FINGERPRINT,
    }
    if call.script.usage:
        answer["usage"] = call.usage()
    return msgspec.json.encode(answer)


def _message(call: Call, index: int) -> dict[str, Any]:
    answer = call.answers[index]
    message: dict[str, Any] = {"role": "assistant", "content": None}
    if isinstance(answer, Text):
        message["content"] = answer.prose.text(answer.length)
    else:
        function = {"name": answer.name, "arguments": answer.text()}
        message["tool_calls"] = [{"id": answer.id, "type": "function", "function": function}]
    return {"index": index, "message": message, "logprobs": None, "finish_reason": answer.finish}


def _text(call: Call, index: int) -> dict[str, Any]:
    answer = call.answers[index]
    assert isinstance(answer, Text), "this route knows no tools"
    text = answer.prose.text(answer.length)
    return {"index": index, "text": text, "logprobs": None, "finish_reason": answer.finish}
