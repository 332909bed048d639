// The page of a report: tips, keyboard, search, series, copies, tables as CSV, light and dark, print.
'use strict';
const $ = id => document.getElementById(id), tip = $('tip');
const every = (where, what) => [...where.querySelectorAll(what)];

// Browsers show <title> only after a second; this shows it at once. Without scripts the slow one stays.
for (const t of every(document, '.t > title')) { t.parentNode.dataset.tip = t.textContent; t.remove(); }

function show(text, x, y) {
  tip.style.display = text ? 'block' : 'none';
  if (!text) return;
  tip.textContent = text;
  tip.style.left = Math.max(4, Math.min(x + 14, innerWidth - tip.offsetWidth - 8)) + 'px';
  tip.style.top = Math.max(4, Math.min(y + 16, innerHeight - tip.offsetHeight - 8)) + 'px';
}
document.addEventListener('mousemove', e => {
  const over = e.target.closest && e.target.closest('[data-tip]');
  show(over && over.dataset.tip, e.clientX, e.clientY);
});

// A figure takes the focus; arrow keys go from mark to mark and say what a pointer would see.
for (const svg of every(document, 'figure svg')) {
  svg.tabIndex = 0;
  let at = -1;
  const leave = () => { every(svg, '.at').forEach(m => m.classList.remove('at')); show(''); };
  svg.addEventListener('blur', leave);
  svg.addEventListener('keydown', e => {
    const step = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[e.key];
    const marks = every(svg, '[data-tip]').filter(m => !m.classList.contains('hidden'));
    if (e.key === 'Escape') return leave();
    if (!step || !marks.length) return;
    e.preventDefault();
    leave();
    at = (at + step + marks.length) % marks.length;
    marks[at].classList.add('at');
    const box = marks[at].getBoundingClientRect();
    show(marks[at].dataset.tip, box.right, box.top);
  });
}

// A picture that is wider than the screen has a frame and a word above it, and fades out on the sides where it goes on.
const more = p => {
  p.classList.toggle('less', p.scrollLeft > 4);
  p.classList.toggle('more', p.scrollLeft + p.clientWidth < p.scrollWidth - 4);
  p.parentElement.classList.toggle('wide', p.clientWidth < p.scrollWidth - 4);
};
const watch = picture => { picture.addEventListener('scroll', () => more(picture), {passive: true}); more(picture); };
every(document, '.picture').forEach(watch);
const look = () => every(document, '.picture').forEach(more);
addEventListener('resize', look);

// Buttons for the series of a figure; one that is off disappears from it.
for (const figure of every(document, 'figure')) {
  const names = [...new Set(every(figure, '[data-series]').map(m => m.dataset.series))];
  if (names.length < 2) continue;
  const bar = document.createElement('div');
  bar.className = 'series';
  for (const name of names) {
    const button = document.createElement('button');
    button.type = 'button';
    button.textContent = name;
    button.setAttribute('aria-pressed', 'true');
    button.addEventListener('click', () => {
      const on = button.getAttribute('aria-pressed') !== 'true';
      button.setAttribute('aria-pressed', String(on));
      every(figure, '[data-series]').filter(m => m.dataset.series === name).forEach(m => m.classList.toggle('hidden', !on));
    });
    bar.append(button);
  }
  figure.querySelector('.picture').before(bar);
}

// Search: marks whose tip or text holds the words stand out, the others of their figure fade. A page that lists matches
// of its own searches by itself.
if (!$('matches')) $('search').addEventListener('input', e => {
  const wanted = e.target.value.trim().toLowerCase();
  let count = 0, first = null;
  for (const svg of every(document, 'figure svg')) {
    const marks = every(svg, '[data-tip], text');
    const hits = new Set(wanted ? marks.filter(m => ((m.dataset.tip || '') + ' ' + m.textContent).toLowerCase().includes(wanted)) : []);
    marks.forEach(m => { m.classList.toggle('found', hits.has(m)); m.classList.toggle('faded', hits.size > 0 && !hits.has(m)); });
    count += hits.size;
    if (hits.size && !first) first = svg;
  }
  $('count').textContent = wanted ? String(count) : '';
  if (first) first.scrollIntoView({block: 'center', behavior: 'instant'});
});

document.addEventListener('click', e => {
  const b = e.target.closest('button');
  if (!b) return;
  if ('copy' in b.dataset) {
    const code = b.parentNode.querySelector('code');
    const done = () => { b.textContent = 'Copied'; setTimeout(() => { b.textContent = 'Copy'; }, 1200); };
    if (navigator.clipboard) navigator.clipboard.writeText(code.textContent).then(done, () => getSelection().selectAllChildren(code));
    else getSelection().selectAllChildren(code);
  }
  if (b.dataset.csv) {
    const cell = text => /[",\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
    const lines = every(b.parentNode, 'tr').map(row => [...row.cells].map(c => cell(c.textContent)).join(','));
    const link = document.createElement('a');
    link.href = URL.createObjectURL(new Blob([lines.join('\n') + '\n'], {type: 'text/csv'}));
    link.download = b.dataset.csv;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }
});

$('theme').addEventListener('click', () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  root.dataset.theme = dark ? 'light' : 'dark';
});
addEventListener('beforeprint', () => every(document, 'details').forEach(d => { d.open = true; }));
