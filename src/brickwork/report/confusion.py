"""A confusion matrix drawn: the share of each class's images (a row) that was taken for each class (a column)."""

from brickwork.evaluation import Evaluation
from brickwork.report.chart import heading
from brickwork.report.drawing import Drawing, Mark, Text, shortened, text_width
from brickwork.report.heat import cell, shade_bar

MOST = 640.0  # pixels of the matrix, whatever the number of classes
FONT, LONGEST, TOP = 11.0, 150.0, 90.0


def draw_confusion(result: Evaluation, of: str = "") -> Drawing:
    """One square per pair of classes; numbers where they fit, and every count in its tip and in the table."""
    count = len(result.classes)
    size = max(3.0, min(44.0, MOST / count))
    names = [shortened(name, FONT, LONGEST) for name in result.classes]
    left = 40 + max(text_width(name, FONT) for name in names)
    marks: list[Mark] = [*heading("Confusion matrix", of), Text(left, TOP - 12, "answered →", FONT)]
    for i, (true, row) in enumerate(zip(result.classes, result.confusion, strict=True)):
        for j, (answered, number) in enumerate(zip(result.classes, row, strict=True)):
            tip = f"{true}\ntaken for {answered}\n{number} of {sum(row)}"
            share = number / sum(row) if sum(row) else float("nan")
            marks += cell(left + j * size, TOP + i * size, size, share, tip)
        if size >= FONT:
            marks.append(Text(left - 6, TOP + (i + 0.5) * size + 4, names[i], FONT, "end"))
    bottom = TOP + count * size
    if size >= 30:  # names below their columns, where they have room
        marks += [
            Text(left + (j + 0.5) * size, bottom + 16, shortened(name, FONT, size - 2), FONT, "middle")
            for j, name in enumerate(result.classes)
        ]
    marks += shade_bar(left, bottom + 34, ["0 %", "50 %", "100 %"])
    wrong = [
        (number, true, answered)
        for true, row in zip(result.classes, result.confusion, strict=True)
        for answered, number in zip(result.classes, row, strict=True)
        if true != answered
    ]
    most = max(wrong, default=(0, "", ""))
    so = (
        f"Most often {most[1]} is taken for {most[2]}, {most[0]} times."
        if most[0]
        else "No image is taken for another."
    )
    about = (
        "To see which classes are taken for which.\nA line is a true class, a column what was answered; "
        f"{result.accuracy:.1%} of {result.images:,} images lie on the diagonal, which is right.\n{so}"
    )
    rows = tuple((name, *map(str, row)) for name, row in zip(result.classes, result.confusion, strict=True))
    width = left + max(count * size, 280.0) + 40
    head = ("true \\ answered", *result.classes)
    cards = (("accuracy", f"{result.accuracy:.1%}"),)
    return Drawing("Confusion matrix", width, bottom + 80, tuple(marks), about, head, rows, cards)
