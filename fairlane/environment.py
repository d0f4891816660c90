"""Every setting that an operator can give, read and checked in one place.

Each value comes from the environment or a `.env` file. A bad one raises ImproperlyConfigured with
one line that names the variable, the value, and what is allowed.
"""

from __future__ import annotations

import re
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import environ
import structlog
from django.core.exceptions import ImproperlyConfigured

from tenants.postgres import Session

ROOT = Path(__file__).resolve().parent.parent

env = environ.FileAwareEnv()
environ.Env.read_env(ROOT / ".env")


def choice(name: str, default: str, allowed: tuple[str, ...]) -> str:
    value = str(env.str(name, default=default))
    if value not in allowed:
        raise ImproperlyConfigured(f"{name} is {value!r}; it takes one of: {', '.join(allowed)}")
    return value


def flag(name: str, default: bool) -> bool:
    """A yes/no setting; django-environ alone would read a typing slip as "no"."""
    value = str(env.str(name, default=str(default))).lower()
    if value in ("1", "true", "yes", "on"):
        return True
    if value in ("0", "false", "no", "off", ""):
        return False
    raise ImproperlyConfigured(f"{name} is {value!r}; it takes true or false")


def number(name: str, default: int, least: int, most: int) -> int:
    text = str(env.str(name, default=str(default)))
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if not least <= value <= most:
        raise ImproperlyConfigured(f"{name} is {text!r}; it takes a whole number, {least}..{most}")
    return value


def url(name: str, default: str, schemes: tuple[str, ...]) -> str:
    value = str(env.str(name, default="")) or default
    if value and urlsplit(value).scheme not in schemes:
        takes = ", ".join(f"{scheme}://…" for scheme in schemes)
        raise ImproperlyConfigured(
            f"{name} has scheme {urlsplit(value).scheme!r}; it takes {takes}"
        )
    return value


SPECIAL = "with what is special in the password as %40, %2F, %23 …"


def server(name: str, schemes: tuple[str, ...], example: str, default: str = "") -> str:
    """A URL with a user and a password, which is not shown: a part of it that stands as it is ends
    the URL's host, or all of it."""
    value = url(name, default, schemes)
    try:
        fault = "port 0" if urlsplit(value).port == 0 else ""
    except ValueError:
        fault = "a port that is no number"
    if urlsplit(value).fragment:
        fault = "a # that is not written as %23"
    if fault:
        raise ImproperlyConfigured(f"{name} has {fault}; it takes {example}, {SPECIAL}")
    return value


def redis_url(name: str) -> str:
    """redis-py takes a database that is no number for 0."""
    example = "redis://user:password@host:6379/0"
    value = server(name, ("redis", "rediss", "unix"), example)
    parts = urlsplit(value)
    if parts.scheme in ("redis", "rediss") and not re.fullmatch(r"/?([0-9]{1,4}/?)?", parts.path):
        raise ImproperlyConfigured(
            f"{name} has a database that is no number; it takes {example}, {SPECIAL}"
        )
    if value:
        _check_options(name, value)
    return value


def _check_options(name: str, value: str) -> None:
    """redis-py looks at them when it connects, and then for each call anew."""
    from redis import ConnectionPool  # not loaded where there is none

    try:
        ConnectionPool.from_url(value).make_connection()
    except (TypeError, ValueError) as error:
        raise ImproperlyConfigured(
            f"{name} has an option behind its ? that redis-py does not take: {error}"
        ) from None


def folder(name: str, default: Path) -> Path:
    path = Path(str(env.str(name, default="")) or default).expanduser().resolve()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ImproperlyConfigured(
            f"{name} is {str(path)!r}; it takes a folder that can be written ({error.strerror})"
        ) from error
    return path


def secret(name: str, debug: bool) -> str:
    value = str(env.str(name, default=""))
    if value:
        return value
    if debug:
        return "insecure-key-for-debug-only"
    raise ImproperlyConfigured(f"{name} is unset; it takes a long random text (or set DEBUG=true)")


def needed(name: str, by: str) -> str:
    value = str(env.str(name, default=""))
    if not value:
        raise ImproperlyConfigured(f"{name} is unset; {by} needs it")
    return value


HOST_NAME = re.compile(r"\*|\.?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*|\[[0-9a-fA-F:.]+\]")


def hosts(name: str, default: str) -> list[str]:
    """Names of this host as a browser asks for them, with commas between; Django itself would
    take anything, and answer nobody."""
    found = _split(str(env.str(name, default="")) or default)
    for text in found:
        if not HOST_NAME.fullmatch(text):
            raise ImproperlyConfigured(
                f"{name} has {text!r}; it takes host names without scheme and port, such as "
                "fairlane.example,.internal.example,10.0.0.5,[::1], or * for any"
            )
    return found


def origins(name: str) -> list[str]:
    found = _split(str(env.str(name, default="")))
    for text in found:
        if not re.fullmatch(r"https?://[^/\s]+", text):
            raise ImproperlyConfigured(
                f"{name} has {text!r}; it takes origins such as https://fairlane.example"
            )
    return found


def _split(given: str) -> list[str]:
    return [text.strip() for text in given.split(",") if text.strip()]


def networks(name: str, default: str = "") -> list[str]:
    """Addresses and networks, with commas between; what is set to nothing names none."""
    found = _split(str(env.str(name, default=default)))
    for text in found:
        try:
            ip_network(text)
        except ValueError as error:
            raise ImproperlyConfigured(
                f"{name} has {text!r}; it takes addresses and networks such as "
                f"10.0.0.5,192.168.0.0/16 ({error})"
            ) from None
    return found


def database(name: str, default: Path, connections: int) -> dict[str, Any]:
    """`connections`: of one process with PostgreSQL, at most."""
    example = "postgres://user:password@host:5432/name"
    schemes = ("sqlite", "postgres", "postgresql")
    value = server(name, schemes, example, f"sqlite:///{default}")
    config: dict[str, Any] = dict(environ.Env.db_url_config(value))
    if "sqlite" in config["ENGINE"]:
        # WAL lets the console read while the gateway writes; IMMEDIATE makes a writer wait for
        # its turn instead of failing when two transactions both began by reading.
        config["OPTIONS"] = {
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
        }
        # A file in tests too: in memory, connections share one cache and do not wait for locks.
        config["TEST"] = {"NAME": str(default.with_name("test.sqlite3"))}
    else:
        options = config.get("OPTIONS", {})
        if not config["NAME"] and "service" not in options:
            raise ImproperlyConfigured(f"{name} names no database; it takes {example}, {SPECIAL}")
        config["OPTIONS"] = {**POSTGRES, **options, "pool": pool(connections)}
        config["CONN_MAX_AGE"], config["CONN_HEALTH_CHECKS"] = 0, True  # back into the pool
    return config


# Of libpq; the URL may say otherwise. A server that is gone without a word is noticed in half a
# minute, not in a quarter of an hour. Nobody waits for a lock for longer than ten seconds but a
# migration: else pages that need a table that is held would take all connections from the others.
POSTGRES = {
    "options": "-c lock_timeout=10s",
    "connect_timeout": 5,
    "keepalives_idle": 20,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}


def pool(connections: int) -> dict[str, Any]:
    """Of psycopg. A connection is made when somebody wants one, so that a command makes one only.
    While the server is away who wants one waits for 5 s; attempts never grow so rare that it takes
    longer than that to notice that it is back."""
    return {
        "connection_class": Session,
        "min_size": 0,
        "max_size": connections,
        "timeout": 5.0,
        "reconnect_timeout": 4.0,
    }


def mail(address: str) -> dict[str, object]:
    """Django's mail settings. Nobody waits for a mail server for long: alerts are tried again."""
    config = dict(environ.Env.email_url_config(address)) if address else {}
    return {**config, "EMAIL_TIMEOUT": 10}


def redis_broker() -> dict[str, Any]:
    """What a worker took and has not done within ten minutes is given to another: longer than any
    task but one takes, and that one (simulations) may run beside itself. A server that took an
    order and says nothing, or what is between and has lost it, is left: beat would wait for good.
    Who waits for a task asks anew each second."""
    return {
        "visibility_timeout": 600,
        "socket_keepalive": True,
        "socket_connect_timeout": 5,
        "socket_timeout": 10,
        "health_check_interval": 30,
    }


def broker_folders(base: Path) -> dict[str, str]:
    """Kombu's filesystem transport: a broker that needs no server."""
    queue, control = base / "queue", base / "control"
    for path in (queue, control):
        path.mkdir(parents=True, exist_ok=True)
    return {
        "data_folder_in": str(queue),
        "data_folder_out": str(queue),
        "control_folder": str(control),
    }


OTEL_LOGGERS = (  # each batch, and each span that is dropped, is a line while a collector is away
    "opentelemetry.sdk._shared_internal",
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.exporter.otlp.proto.http.metric_exporter",
    "opentelemetry.exporter.otlp.common.http",
)


def logging(style: str) -> dict[str, object]:
    """structlog's renderer behind the standard library's loggers, one line an event."""
    renderer = (
        structlog.processors.JSONRenderer()
        if style == "json"
        else structlog.dev.ConsoleRenderer(
            colors=False, exception_formatter=structlog.dev.plain_traceback
        )
    )
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "line": {
                "()": structlog.stdlib.ProcessorFormatter,
                "processors": [
                    structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                    *([structlog.processors.format_exc_info] if style == "json" else []),
                    renderer,
                ],
                "foreign_pre_chain": shared,
            }
        },
        "filters": {
            "sparing": {"()": "fairlane.database_faults.Sparing"},
            "one line": {"()": "fairlane.broker_faults.OneLine"},
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
        "root": {"handlers": ["stderr"], "level": "INFO"},
        "loggers": {
            "axes": {"level": "WARNING"},
            "celery.beat": {"filters": ["one line"]},
            "celery.worker.consumer.consumer": {"filters": ["one line"]},
            "django.request": {"level": "ERROR"},
            "fairlane.beat": {"filters": ["sparing"]},
            "fairlane.front": {"filters": ["sparing"]},
            "httpx": {"level": "WARNING"},
            "psycopg.pool": {"level": "WARNING", "filters": ["sparing"]},
            "tenants.postgres": {"filters": ["sparing"]},
            "uvicorn.access": {"level": "WARNING"},
            **{name: {"filters": ["sparing"]} for name in OTEL_LOGGERS},
        },
    }
