"""The chapters of a report: what each part of Brickwork does, in words for someone who never heard of the papers."""

from collections.abc import Sequence

from brickwork.report.book import Chapter
from brickwork.report.drawing import Drawing

#: part: title, what it is for
PARTS = {
    "networks": (
        "The networks",
        "Everything below starts from ordinary trained networks. Their folders hold weights, class names and how images are "
        "prepared; nothing in them is code.",
    ),
    "bricks": (
        "Bricks: take the classes you need",
        "The channels that decide for some classes are cut out of a network, repaired without labels and joined with parts "
        "of other networks. Look at how few channels two classes share, and at what is lost against the whole networks.",
    ),
    "algebra": (
        "Weight algebra: add what was learned",
        "Two networks from one start, added up as numbers: α times what one learned and β times what the other did. Light "
        "cells keep that task; the frame marks where the worse of the two is best.",
    ),
    "transplant": (
        "Transplanting: plug a category into a task",
        "The lower half of one network feeds the upper half of another, which never saw its categories, through a small "
        "adapter. Compare the transplanted answers with the teacher's own.",
    ),
    "pools": (
        "Pools: task after task from frozen kernels",
        "Every task chooses its kernels from one pool that never changes, so no earlier task can be forgotten, and a task "
        "is a small file of numbers. Look at the megabytes, and at accuracy staying where it was.",
    ),
    "dependencies": (
        "Dependencies: which classes follow from others",
        "How far a class's logit is a sum of a few others': the relative error says it, 0 is all of it, 1 nothing. Lines "
        "lead to the classes it takes to write one; a class "
        "that follows from others can be replaced, and a new one can be added on top of a network that stays as it is.",
    ),
    "studies": (
        "Studies: the papers' numbers and ours",
        "Each line is a row of a paper's table: a ring is what the paper reports, a square what was measured here; without "
        "a ring, the paper has no such number.",
    ),
}


def chapters(figures: Sequence[Drawing]) -> list[Chapter]:
    """Figures as chapters in the order above; a figure of no known part is a chapter of its own."""
    known = [
        Chapter(title, about, tuple(figure for figure in figures if figure.part == part))
        for part, (title, about) in PARTS.items()
        if any(figure.part == part for figure in figures)
    ]
    return known + [Chapter(figure.title, "", (figure,)) for figure in figures if figure.part not in PARTS]
