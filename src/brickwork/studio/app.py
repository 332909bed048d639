"""The studio's server: a page and a few answers in JSON, for this machine and whoever has the token."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated, Any

from brickwork.errors import BrickworkError, MissingExtra
from brickwork.report.book import asset
from brickwork.studio.build import BuildRequest as Board
from brickwork.studio.build import Say, build, predicted, zipped
from brickwork.studio.jobs import Jobs
from brickwork.studio.shelf import Shelf

try:
    from fastapi import Depends, FastAPI, Header, HTTPException, Query
    from fastapi import Request as Asked
    from fastapi.responses import HTMLResponse, JSONResponse, Response
except ImportError as error:
    raise MissingExtra("studio", "the pages of a studio") from error

HOSTS = ("127.0.0.1", "localhost")


def make_app(root: Path, token: str, device: str = "cpu") -> FastAPI:
    """The application; every request needs the token, and names only what is below `root`."""
    shelf, jobs = Shelf(root), Jobs()

    def known(
        asked: Asked, x_token: Annotated[str, Header()] = "", token_: Annotated[str, Query(alias="token")] = ""
    ) -> None:
        # another name for this machine in Host is a page elsewhere that lets a browser ask here
        if asked.url.hostname not in HOSTS:
            raise HTTPException(403, "this studio answers to 127.0.0.1 only")
        if not secrets.compare_digest((x_token or token_).encode(), token.encode()):
            raise HTTPException(403, "the token is wrong; open the address that brickwork studio printed")

    app = FastAPI(
        title="Brickwork studio", docs_url=None, redoc_url=None, openapi_url=None, dependencies=[Depends(known)]
    )

    @app.exception_handler(BrickworkError)
    async def refused(_: Asked, error: BrickworkError) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, 422)

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
        head = {"Content-Disposition": f'attachment; filename="{folder.name}.zip"'}
        return Response(zipped(folder), media_type="application/zip", headers=head)

    return app


POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:"


def _page() -> str:
    here = Path(__file__)
    text, style, script = (here.with_name(f"page.{kind}").read_text(encoding="utf-8") for kind in ("html", "css", "js"))
    return text.replace("{{style}}", asset("base.css") + style).replace("{{script}}", script)
