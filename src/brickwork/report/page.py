"""A drawing as one HTML page that opens from a file, without a network."""

from __future__ import annotations

from html import escape

from brickwork.report.drawing import Drawing

STYLE = """
body{font-family:system-ui,sans-serif;color:#1b1f24;background:#fff;margin:24px auto;max-width:1500px;padding:0 20px}
.picture{overflow-x:auto}
svg{width:100%;min-width:900px;height:auto;display:block}
.numbers{overflow-x:auto;margin:28px 24px 0}
table{border-collapse:collapse;font-size:14px;font-variant-numeric:tabular-nums}
caption{text-align:left;font-weight:600;padding-bottom:8px}
th,td{padding:4px 14px;text-align:right;border-bottom:1px solid #e3e6ea;white-space:nowrap}
th:first-child,td:first-child{text-align:left;padding-left:4px}
tbody tr:hover{background:#f3f5f8}
p{max-width:80ch;margin:20px 28px;line-height:1.5;color:#57606a;font-size:14px}
#tip{position:fixed;display:none;white-space:pre-line;background:#1b1f24;color:#fff;padding:7px 10px;border-radius:5px;
font-size:12.5px;line-height:1.45;pointer-events:none;max-width:360px;z-index:9}
"""

# Browsers show <title> only after a second; this shows it at once. Without scripts the slow one stays.
SCRIPT = """
const tip=document.getElementById('tip');
for(const t of document.querySelectorAll('.t > title')){t.parentNode.dataset.tip=t.textContent;t.remove()}
document.addEventListener('mousemove',e=>{
const text=e.target.dataset&&e.target.dataset.tip;
tip.style.display=text?'block':'none';
if(!text)return;
tip.textContent=text;
tip.style.left=Math.max(4,Math.min(e.clientX+14,innerWidth-tip.offsetWidth-8))+'px';
tip.style.top=Math.max(4,Math.min(e.clientY+16,innerHeight-tip.offsetHeight-8))+'px';
});
"""


def page(drawing: Drawing) -> str:
    """The whole page as text."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in drawing.head)
    rows = "\n".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in drawing.rows
    )
    table = ""
    if drawing.head:
        table = (
            f'<div class="numbers"><table><caption>The numbers</caption>\n<thead><tr>{head}</tr></thead>\n'
            f"<tbody>\n{rows}\n</tbody></table></div>\n"
        )
    picture = (
        f'<div class="picture" style="max-width:{drawing.width * 1.2:.0f}px">{drawing.svg(inline=True)}</div>'
    )
    about = f"<p>{escape(drawing.about)}</p>\n" if drawing.about else ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f"<title>{escape(drawing.title)}</title>\n<style>{STYLE}</style></head>\n<body>\n"
        f'{picture}{table}{about}<div id="tip"></div>\n<script>{SCRIPT}</script>\n'
        "</body></html>\n"
    )
