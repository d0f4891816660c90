"""Answers that are made while they are sent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from asgiref.sync import sync_to_async
from django.http import StreamingHttpResponse


class Streamed(StreamingHttpResponse):
    """Of a plain generator, which may ask the database. Django itself would collect all of it
    before it sends the first byte, under ASGI."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        parts = iter(self)
        while (part := await sync_to_async(following)(parts)) is not None:
            yield part


def following(parts: Iterator[bytes]) -> bytes | None:
    return next(parts, None)
