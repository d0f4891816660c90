"""vLLM's error shapes. Its `code` is the HTTP status as a number, where OpenAI's is text."""

from __future__ import annotations

from http import HTTPStatus

import msgspec


class ApiError(Exception):
    def __init__(self, status: int, message: str, kind: str = "", param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind or HTTPStatus(status).phrase
        self.param = param
        self.headers: list[tuple[bytes, bytes]] = []

    def body(self) -> bytes:
        error = {
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.status,
        }
        return msgspec.json.encode({"error": error})


def bad_request(message: str, param: str | None = None) -> ApiError:
    return ApiError(400, message, "BadRequestError", param)


def unknown_model(name: str) -> ApiError:
    return ApiError(404, f"The model `{name}` does not exist.", "NotFoundError", "model")


def prompt_too_long(tokens: int, most: int) -> ApiError:
    return bad_request(
        f"This model's maximum context length is {most} tokens. However, your request has "
        f"{tokens} input tokens. Please reduce the length of the input messages.",
        "input_tokens",
    )


def output_too_long(wanted: int, prompt: int, most: int) -> ApiError:
    return bad_request(
        f"'max_tokens' or 'max_completion_tokens' is too large: {wanted}. This model's maximum "
        f"context length is {most} tokens and your request has {prompt} input tokens "
        f"({wanted} > {most} - {prompt}).",
        "max_tokens",
    )


def busy(limit: int) -> ApiError:
    return ApiError(
        503,
        f"The engine is busy: it takes {limit} requests, running and waiting. Try again later.",
        "Service Unavailable",
    )
