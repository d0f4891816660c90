"""What is wrong with the server of the shared state, in words: which part of its address to mend.

Neither these words nor redis-py's own hold a password.
"""

from __future__ import annotations

WORDS = {  # by what redis-py, Redis or Valkey says, in lower case; the first that fits
    "maxmemory": "the server's memory is full; raise its maxmemory",
    "read only replica": "the server follows another one, and takes no writes",
    "good replicas": "the server lacks the followers that its min-replicas-to-write asks for",
    "no permissions": "the user in REDIS_URL lacks a right; it needs ~* &* +@all",
    "password": "the user or password in REDIS_URL is not taken",
    "authenticat": "the user or password in REDIS_URL is missing or not taken",
    "db index": "REDIS_URL names a database that the server does not have",
    "protocol error": "what answers at REDIS_URL is no Redis, or takes TLS only (rediss://)",
    "ssl": "REDIS_URL asks for TLS (rediss://), and the server's is missing or not trusted",
    "closed by server": "the server hangs up; one that takes TLS only needs rediss:// in REDIS_URL",
    "reset by peer": "the server hangs up; one that takes TLS only needs rediss:// in REDIS_URL",
    "timeout": "the server at REDIS_URL does not answer in time; rediss:// needs its TLS port",
    "not known": "the host in REDIS_URL has no address",
    "refused": "nobody listens at the host and port in REDIS_URL",
    "no such file": "there is no socket at the path in REDIS_URL",
}


def in_words(error: Exception) -> str:
    said = str(error) or type(error).__name__
    hint = next((words for part, words in WORDS.items() if part in said.lower()), None)
    return f"{hint} ({said})" if hint else said
