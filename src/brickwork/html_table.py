"""Results as HTML tables, for notebooks and pages. Every text is escaped."""

from collections.abc import Iterable, Sequence
from html import escape


def facts_table(rows: Iterable[tuple[str, str]]) -> str:
    """A table of names and values, one row each.

    >>> facts_table([("classes", "cat & dog")])
    '<table><tr><th>classes</th><td>cat &amp; dog</td></tr></table>'
    """
    body = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows)
    return f"<table>{body}</table>"


def rows_table(head: Sequence[str], rows: Iterable[Sequence[str]], *, lines: Iterable[str] = ()) -> str:
    """A table with a heading per column, below paragraphs of text.

    >>> print(rows_table(["class", "images"], [["cat", "3"]], lines=["3 images"]))
    <p>3 images</p><table>
    <thead><tr><th>class</th><th>images</th></tr></thead>
    <tbody>
    <tr><td>cat</td><td>3</td></tr>
    </tbody></table>
    """
    above = "".join(f"<p>{escape(line)}</p>" for line in lines)
    titles = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "\n".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"{above}<table>\n<thead><tr>{titles}</tr></thead>\n<tbody>\n{body}\n</tbody></table>"
