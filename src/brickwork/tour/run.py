"""The whole tour: part after part, then the page."""

import json
import time
from collections.abc import Callable
from typing import Any

import torch

from brickwork.report.book import Book
from brickwork.report.dependencies import MAP_HEAD
from brickwork.report.drawing import Drawing
from brickwork.report.parts import chapters
from brickwork.report.runs import save_figures
from brickwork.tour.algebra import algebra
from brickwork.tour.bricks import bricks
from brickwork.tour.dependencies import dependencies
from brickwork.tour.merging import merging
from brickwork.tour.pools import pools
from brickwork.tour.stage import PartResult, Stage
from brickwork.tour.transplant import transplant

#: name, what is happening, the function
PARTS: tuple[tuple[str, str, Callable[[Stage], PartResult]], ...] = (
    ("merge", "two networks of two teams become one", merging),
    ("bricks", "parts of three kinds of networks are joined and exported", bricks),
    ("algebra", "two networks are added up, cell after cell of a grid", algebra),
    ("transplant", "sixes are plugged into a network that knew zeros", transplant),
    ("pools", "three tasks are learned from one frozen pool", pools),
    ("dependencies", "dependent digits are found, and a tenth is added to nine", dependencies),
)
RESULT, PAGE = "demo.json", "report.html"
ABOUT = (
    "Networks built out of trained ones, on handwritten digits of 8×8 pixels; every number on this page comes from this run. "
    "Hover for values. The commands run as they stand, in the folder from which the tour was taken, and write beside what it "
    "made."
)


def take(stage: Stage) -> dict[str, Any]:
    """Walk through all parts; writes their folders, the page and the numbers, and returns the numbers."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # networks as small as these run fastest on one; on busy cores two are ten times as slow
    try:
        return _walk(stage)
    finally:
        torch.set_num_threads(before)


def _walk(stage: Stage) -> dict[str, Any]:
    figures: list[Drawing] = []
    parts, seconds = {}, {}
    for number, (name, words, part) in enumerate(PARTS, 1):
        stage.log(f"[{number}/{len(PARTS)}] {words} …")
        began = time.perf_counter()
        drawn, parts[name] = part(stage)
        seconds[name] = round(time.perf_counter() - began, 1)
        figures += drawn
    Book("Brickwork: the tour", chapters(figures), ABOUT).save(stage.folder / PAGE)
    # a report reads the map's folder itself, so its figure is not saved
    save_figures(stage.folder, [figure for figure in figures if figure.head != MAP_HEAD])
    place = {"name": "demo", "seed": stage.seed, "device": str(stage.device), "page": str(stage.final / PAGE)}
    result = {**place, "parts": parts, "seconds": seconds}
    (stage.folder / RESULT).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return result
