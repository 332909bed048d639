"""The studio's server: a page and a few answers in JSON, for this machine and whoever has the token."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

from brickwork.errors import BrickworkError, MissingExtra
from brickwork.report.book import asset
from brickwork.studio.build import BuildRequest as Board
from brickwork.studio.build import Say, build, predicted, zipped
from brickwork.studio.gate import Gate
from brickwork.studio.jobs import Jobs
from brickwork.studio.shelf import Shelf

try:
    from fastapi import FastAPI, HTTPException
    from fastapi import Request as Asked
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import HTMLResponse, JSONResponse, Response
except ImportError as error:
    raise MissingExtra("studio", "the pages of a studio") from error


def make_app(root: Path, token: str, device: str = "cpu") -> FastAPI:
    """The application; every request needs the token, and names only what is below `root`."""
    shelf, jobs = Shelf(root), Jobs()
    app = FastAPI(title="Brickwork studio", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(Gate, token=token)

    @app.exception_handler(BrickworkError)
    async def refused(_: Asked, error: BrickworkError) -> JSONResponse:
        return _refusal(str(error))

    @app.exception_handler(RequestValidationError)
    async def unreadable(_: Asked, error: RequestValidationError) -> JSONResponse:
        return _refusal("; ".join(f"{'.'.join(map(str, e['loc'][1:]))}: {e['msg']}" for e in error.errors()[:5]))

    @app.get("/", response_class=HTMLResponse)
    def page() -> HTMLResponse:
        return HTMLResponse(_page(), headers={"Content-Security-Policy": POLICY, "Referrer-Policy": "no-referrer"})

    @app.get("/api/models")
    def models() -> list[dict[str, Any]]:
        return shelf.models()

    @app.get("/api/parameters")
    def parameters(model: str) -> dict[str, int]:
        return {"parameters": shelf.parameters(model)}

    @app.post("/api/size")
    def size(board: Board) -> dict[str, Any]:
        return predicted(shelf, board)

    @app.post("/api/build")
    def start(board: Board) -> dict[str, Any]:
        predicted(shelf, board)
        shelf.new(board.name)
        for text in [*(wanted.data for wanted in board.parts), *([board.judge] if board.judge else [])]:
            shelf.spec(text)

        def work(say: Say) -> dict[str, Any]:
            with shelf.busy:  # a network that is counted meanwhile would be traced at the same time
                return build(shelf, board, device, say)

        job = jobs.start(work)
        if job is None:
            raise HTTPException(429, "too many builds are waiting")
        return job.to_dict()

    @app.get("/api/jobs/{number}")
    def job(number: int) -> dict[str, Any]:
        known_job = jobs.get(number)
        if known_job is None:
            raise HTTPException(404, f"there is no build {number}")
        return known_job.to_dict()

    @app.get("/api/download")
    def download(model: str) -> Response:
        folder = shelf.model(model)
        # a header knows no other letters than these, and no line breaks
        head = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(folder.name, safe='')}.zip"}
        return Response(zipped(folder), media_type="application/zip", headers=head)

    return app


def _refusal(words: str) -> JSONResponse:
    """One sentence; what cannot be written as UTF-8 is replaced."""
    return JSONResponse({"detail": words.encode("utf-8", "replace").decode()[:2000]}, 422)


POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:"


def _page() -> str:
    here = Path(__file__)
    text, style, script = (here.with_name(f"page.{kind}").read_text(encoding="utf-8") for kind in ("html", "css", "js"))
    return text.replace("{{style}}", asset("base.css") + style).replace("{{script}}", script)
