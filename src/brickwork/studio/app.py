"""The studio's server: a page and answers in JSON, for this machine and whoever has the token."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

from brickwork import zoo
from brickwork.errors import BrickworkError, MissingExtra
from brickwork.report.book import asset
from brickwork.studio import classes, exchange, merging
from brickwork.studio import requests as asks
from brickwork.studio.build import build, check_build, predicted
from brickwork.studio.cards import Cards
from brickwork.studio.curve import Curves
from brickwork.studio.gate import Gate
from brickwork.studio.jobs import Job, Jobs, Work
from brickwork.studio.shelf import Shelf

try:
    from fastapi import FastAPI, HTTPException, Query
    from fastapi import Request as Asked
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, Response
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import ClientDisconnect
except ImportError as error:
    raise MissingExtra("studio", "the pages of a studio") from error

UPLOADS = 4  # at a time


def make_app(shelf: Shelf | Path, token: str, device: str = "cpu") -> FastAPI:
    """The application; every request needs the token, and names only what is below the roots of the shelf."""
    shelf, jobs = shelf if isinstance(shelf, Shelf) else Shelf(shelf), Jobs()
    curves = Curves(shelf, jobs, device)

    @asynccontextmanager
    async def until_the_end(_: FastAPI) -> AsyncIterator[None]:
        yield
        jobs.close()  # Ctrl-C does not wait for what is in line
        curves.close()

    app = FastAPI(title="Brickwork studio", docs_url=None, redoc_url=None, openapi_url=None, lifespan=until_the_end)
    app.add_middleware(Gate, token=token)
    _add_refusals(app)
    _add_shelf(app, shelf, jobs)
    _add_board(app, shelf, curves)
    _add_jobs(app, shelf, jobs, device)
    _add_files(app, shelf)
    return app


def _add_refusals(app: FastAPI) -> None:
    """Every wrong request is answered with one sentence."""

    @app.exception_handler(BrickworkError)
    async def refused(_: Asked, error: BrickworkError) -> JSONResponse:
        return _refusal(str(error))

    @app.exception_handler(RequestValidationError)
    async def unreadable(_: Asked, error: RequestValidationError) -> JSONResponse:
        return _refusal("; ".join(f"{'.'.join(map(str, e['loc'][1:]))}: {e['msg']}" for e in error.errors()[:5]))

    @app.exception_handler(ClientDisconnect)
    async def gone(_: Asked, error: ClientDisconnect) -> JSONResponse:
        return _refusal("the connection was closed before the file was there.")


def _add_shelf(app: FastAPI, shelf: Shelf, jobs: Jobs) -> None:
    """The page, and the networks."""
    held, cards = app.state, Cards(shelf)
    held.board = asks.Board()

    @app.get("/", response_class=HTMLResponse)
    def page() -> HTMLResponse:
        return HTMLResponse(_page(), headers={"Content-Security-Policy": POLICY, "Referrer-Policy": "no-referrer"})

    @app.get("/api/state")
    def state() -> dict[str, Any]:
        return {
            "models": models(),
            "jobs": jobs.summaries(),
            "board": held.board.model_dump(),
            "deleted": [{"number": n, "model": name} for n, name in reversed(shelf.deleted().items())],
            "formats": exchange.formats(),
            "images": shelf.image_folders(),
            "archs": [*shelf.arch, *zoo.names()],
        }

    @app.get("/api/models")
    def models() -> list[dict[str, Any]]:
        return [row | {"card": None if "error" in row else cards.known(row["name"])} for row in shelf.models()]

    @app.get("/api/card")
    def card(model: str) -> dict[str, Any]:
        return cards.card(model)

    @app.post("/api/rename")
    def rename(asked: asks.Rename) -> dict[str, Any]:
        return {"model": shelf.rename(asked.model, asked.to)}

    @app.post("/api/delete")
    def delete(asked: asks.Delete) -> dict[str, Any]:
        return {"number": shelf.delete(asked.model)}

    @app.post("/api/undelete")
    def undelete(asked: asks.Undelete) -> dict[str, Any]:
        return {"model": shelf.undelete(asked.number)}


def _add_board(app: FastAPI, shelf: Shelf, curves: Curves) -> None:
    """What lies on the board, and what may be expected of it."""

    @app.post("/api/board")
    def keep(board: asks.Board) -> dict[str, Any]:
        app.state.board = board
        return {}

    @app.post("/api/size")
    def size(board: asks.BuildRequest) -> dict[str, Any]:
        return predicted(shelf, board)

    @app.post("/api/curve")
    def curve(part: asks.CurveRequest) -> dict[str, Any]:
        return curves.ask(part)


def _add_jobs(app: FastAPI, shelf: Shelf, jobs: Jobs, device: str) -> None:
    """Work that takes a while: it is put in line, followed, and cancelled."""

    def started(kind: str, title: str, work: Work) -> dict[str, Any]:
        def alone(say: Any) -> dict[str, Any]:
            with shelf.busy:  # a network that is counted meanwhile would be traced at the same time
                return work(say)

        job = jobs.start(kind, title, alone)
        if job is None:
            raise HTTPException(429, "too many builds are waiting")
        return job.to_dict()

    def offer(kind: str, request: type, check: Callable[..., None], work: Callable[..., dict[str, Any]]) -> None:
        def start(asked: Any) -> dict[str, Any]:
            check(shelf, asked)
            title = " and ".join(asked.models) if kind == "map" else asked.name
            return started(kind, title, lambda say: work(shelf, asked, device, say))

        start.__annotations__["asked"] = request  # what FastAPI reads the body as
        app.post(f"/api/{kind}")(start)

    offer("build", asks.BuildRequest, check_build, build)
    offer("merge", asks.MergeRequest, merging.check_merge, merging.merge)
    offer("map", asks.MapRequest, merging.check_pair, merging.weight_map)
    offer("add", asks.AddRequest, classes.check_add, classes.add)
    offer("forget", asks.ForgetRequest, classes.check_forget, classes.forget)

    @app.post("/api/export")
    def start_export(asked: asks.Export) -> dict[str, Any]:
        exchange.check_export(shelf, asked.model, asked.to)
        title = f"{asked.model} to {asked.to}"
        return started("export", title, lambda say: exchange.export(shelf, asked.model, asked.to, say))

    def known(number: int) -> Job:
        job = jobs.get(number)
        if job is None:
            raise HTTPException(404, f"there is no build {number}")
        return job

    @app.get("/api/jobs")
    def history() -> list[dict[str, Any]]:
        return jobs.summaries()

    @app.get("/api/jobs/{number}")
    def job(number: int) -> dict[str, Any]:
        return known(number).to_dict()

    @app.post("/api/jobs/{number}/cancel")
    def cancel(number: int) -> dict[str, Any]:
        jobs.cancel(known(number))
        return known(number).summary()


def _add_files(app: FastAPI, shelf: Shelf) -> None:
    """Files that come and go."""
    uploads = asyncio.Semaphore(UPLOADS)

    @app.get("/api/download")
    def download(model: str) -> Response:
        folder = shelf.model(model)
        return _attached(exchange.zipped(folder), f"{folder.name}.zip")

    @app.get("/api/exported")
    def exported(file: str) -> Response:
        path = exchange.exported(shelf, file)
        if path.is_dir():
            return _attached(exchange.zipped(path), f"{path.name}.zip")
        return FileResponse(path, media_type="application/octet-stream", filename=path.name)

    @app.post("/api/import")
    async def upload(asked: Annotated[asks.Import, Query()], request: Asked) -> dict[str, Any]:
        await run_in_threadpool(exchange.check_import, shelf, asked)
        if uploads.locked():
            raise HTTPException(429, f"{UPLOADS} files are being uploaded already; try again when one is there")
        async with uploads:
            with tempfile.TemporaryDirectory(prefix=".upload-", dir=shelf.root) as place:
                path = Path(place) / f"{asked.name}.{asked.kind}"
                with open(path, "wb") as file:
                    async for piece in request.stream():
                        file.write(piece)
                return await run_in_threadpool(exchange.import_file, shelf, asked, path)

    @app.post("/api/try")
    async def answers(model: str, request: Asked) -> dict[str, Any]:
        return await run_in_threadpool(exchange.answers, shelf, model, await request.body())


def _attached(content: bytes, name: str) -> Response:
    # a header knows no other letters than these, and no line breaks
    head = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}"}
    return Response(content, media_type="application/zip", headers=head)


def _refusal(words: str) -> JSONResponse:
    """One sentence; what cannot be written as UTF-8 is replaced."""
    return JSONResponse({"detail": words.encode("utf-8", "replace").decode()[:2000]}, 422)


POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:"


SCRIPTS = ("core.js", "board.js", "verbs.js", "networks.js", "result.js", "page.js")


def _page() -> str:
    def read(name: str) -> str:
        return Path(__file__).with_name(name).read_text(encoding="utf-8")

    script = "\n".join(map(read, SCRIPTS))
    filled = {"style": asset("base.css") + read("page.css"), "library": read("preact.js"), "script": script}
    text = read("page.html")
    for name, value in filled.items():
        text = text.replace("{{" + name + "}}", value)
    return text
