"""A mail server as small as RFC 5321 allows, over a real socket."""

from __future__ import annotations

import base64
import threading
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Any


@dataclass
class Received:
    sender: str = ""
    to: list[str] = field(default_factory=list)
    login: str = ""
    content: bytes = b""

    @property
    def message(self) -> EmailMessage:
        return message_from_bytes(self.content, policy=policy.default)  # type: ignore[return-value]


class Session(StreamRequestHandler):
    server: MailServer

    def handle(self) -> None:
        self.mail = Received()
        self.say("220 here")
        while line := self.rfile.readline():
            verb, _, rest = line.decode().strip().partition(" ")
            if verb.upper() == "QUIT":
                self.say("221 bye")
                return
            self.answer(verb.upper(), rest)

    def say(self, *lines: str) -> None:
        self.wfile.write("".join(f"{line}\r\n" for line in lines).encode())

    def answer(self, verb: str, rest: str) -> None:
        if verb == "EHLO":
            self.say("250-here", "250 AUTH PLAIN")
        elif verb == "AUTH":
            self.mail.login = base64.b64decode(rest.split()[1]).decode().replace("\0", " ").strip()
            self.say("235 welcome")
        elif verb == "MAIL":
            self.mail.sender = rest.partition("<")[2].partition(">")[0]
            self.say(self.server.refusal or "250 go on")
        elif verb == "RCPT":
            self.mail.to.append(rest.partition("<")[2].partition(">")[0])
            self.say("250 go on")
        elif verb == "DATA":
            self.take()
        else:
            self.say("250 well")

    def take(self) -> None:
        self.say("354 speak")
        lines = []
        while (line := self.rfile.readline()) not in (b".\r\n", b""):
            lines.append(line[1:] if line.startswith(b".") else line)
        self.mail.content = b"".join(lines)
        self.server.received.append(self.mail)
        self.mail = Received(login=self.mail.login)
        self.say("250 taken")


class MailServer(ThreadingTCPServer):
    """`refusal`: the answer to MAIL, where it takes nothing at the moment."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Session)
        self.received: list[Received] = []
        self.refusal = ""
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,))
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def __exit__(self, *args: Any) -> None:
        self.shutdown()
        self._thread.join()
        super().__exit__(*args)
