"""The chapters of a report: what each part of Brickwork does, in words for someone who never heard of the papers."""

from collections.abc import Sequence

from brickwork.report.book import Chapter
from brickwork.report.drawing import Drawing

#: part: title, what it is for
PARTS = {
    "merge": (
        "Merging: two networks become one",
        "Two networks of one architecture that were trained apart are made one of the same size. match solves every layer's "
        "weights so that it answers as the two did on unlabelled images.",
    ),
    "bricks": (
        "Bricks: take the classes you need",
        "The channels that some classes need are cut out of a network, repaired without labels and joined with parts of other "
        "networks, of any architecture.",
    ),
    "algebra": (
        "Weight algebra: add what was learned",
        "Two networks from one start, added up as numbers: α times what one learned and β times what the other did. It needs no "
        "image.",
    ),
    "transplant": (
        "Transplanting: plug a category into a task",
        "The lower half of one network feeds the upper half of another, which never saw its categories, through a small "
        "adapter.",
    ),
    "pools": (
        "Pools: task after task from frozen kernels",
        "Every task chooses its kernels from one pool that never changes, so no earlier task can be forgotten, and a task "
        "is a small file of numbers.",
    ),
    "dependencies": (
        "Dependencies: which classes follow from others",
        "Which classes a network could do without, because their logits (its raw scores) follow from others', and how a class is "
        "added to a network that stays as it is.",
    ),
    "studies": (
        "Studies: the papers' numbers and ours",
        "What the papers report and what was measured here, with the command that measures it again.",
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
