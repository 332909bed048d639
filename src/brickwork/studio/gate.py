"""Who may ask, and how much may be asked: decided before a byte of a body is read."""

from __future__ import annotations

import json
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qs

from brickwork.errors import MissingExtra

try:
    from fastapi import HTTPException
except ImportError as error:
    raise MissingExtra("studio", "the pages of a studio") from error

HOSTS = ("127.0.0.1", "localhost")
LARGEST, LONGEST = 1 << 18, 1 << 13  # bytes of a body, and of an address
FILES = {"/api/import": 1 << 30, "/api/try": 1 << 25}  # bytes of the bodies that are files

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Gate:
    """An ASGI application around another: the host, the token and the sizes come first."""

    def __init__(self, app: Any, token: str) -> None:
        self.app, self.token = app, token

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            await _answer(send, *refusal)
            return
        taken, most = 0, FILES.get(scope["path"], LARGEST)

        async def limited() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > most:  # a body that did not say how long it is
                raise HTTPException(413, _large(most))
            return message

        await self.app(scope, limited, send)

    def _refusal(self, scope: MutableMapping[str, Any]) -> tuple[int, str] | None:
        headers = {name.decode("latin-1").lower(): value for name, value in scope["headers"]}
        host = headers.get("host", b"").decode("latin-1").rsplit(":", 1)[0]
        # another name for this machine in Host is a page elsewhere that lets a browser ask here
        if host not in HOSTS:
            return 403, "this studio answers to 127.0.0.1 only"
        given = headers.get("x-token", b"") or _first(scope["query_string"])
        if not secrets.compare_digest(given, self.token.encode()):
            return 403, "the token is wrong; open the address that brickwork studio printed"
        if len(scope["raw_path"] or b"") + len(scope["query_string"]) > LONGEST:
            return 414, f"the address is longer than {LONGEST} bytes"
        length, most = headers.get("content-length", b"0"), FILES.get(scope["path"], LARGEST)
        if not length.isdigit() or int(length[:20]) > most:
            return 413, _large(most)
        return None


def _large(most: int) -> str:
    return f"the request has more than {most >> 10} kB, which is too much for what it asks"


def _first(query: bytes) -> bytes:
    values = parse_qs(query[:LONGEST].decode("latin-1")).get("token", [""])
    return values[0].encode("utf-8", "replace")


async def _answer(send: Send, status: int, words: str) -> None:
    body = json.dumps({"detail": words}).encode()
    head = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})
