// The page of a dependency map. First its charts: the graph of one class, bars, correlation against coefficient.
const M = JSON.parse(document.getElementById('map').textContent);
const PLUS = '#0072b2', MINUS = '#d55e00', INK = '#1b1f24', PALE = '#57606a', SMALL = 14;
const SPACE = document.querySelector('#overview svg').namespaceURI;
const colour = value => value > 0 ? PLUS : MINUS;
const number = (value, digits = 3) => value === null || value === undefined ? '–'
  : value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e5) ? value.toExponential(2) : value.toFixed(digits);
const percent = (value, digits = 1) => value === null || value === undefined ? '–' : (100 * value).toFixed(digits) + ' %';
const signed = (value, digits = 3) => (value < 0 ? '−' : '+') + Math.abs(value).toFixed(digits);

// Class names only ever become text nodes and attributes, never markup.
function make(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key === 'tip') node.dataset.tip = value; else if (value !== undefined) node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}
const tag = (name, attributes, ...children) => make(document.createElement(name), attributes, children);
const mark = (name, attributes, ...children) => make(document.createElementNS(SPACE, name), attributes, children);

// [{base, value, often, size}] of a target, the largest coefficient first.
const LINKS = M.links.map((flat, t) => {
  const row = [];
  for (let i = 0; i < flat.length; i += 2) {
    row.push({target: t, base: flat[i], value: flat[i + 1], often: M.often && M.often[t][i / 2],
      size: M.scatter && M.scatter.links[t][i / 2]});
  }
  return row;
});
const MOST = LINKS.reduce((most, row) => Math.max(most, ...row.slice(0, 1).map(l => Math.abs(l.value))), 0) || 1;
const linkTip = l => M.targets[l.target] + ' ≈ … ' + (l.value < 0 ? '− ' : '+ ') + Math.abs(l.value).toFixed(3) + '·' + M.names[l.base]
  + ' …' + (l.often === null ? '' : '\nchosen in ' + percent(l.often, 0) + ' of the bootstrap rounds');

const pen = document.createElement('canvas').getContext('2d');
function fitted(text, size, room, weight = 400) {
  pen.font = weight + ' ' + size + 'px system-ui, sans-serif';
  const letters = Array.from(text), wide = s => pen.measureText(s).width;
  if (wide(text) <= room) return text;
  let keep = letters.length - 1;
  const cut = () => letters.slice(0, Math.ceil(keep / 2)).join('') + '…' + letters.slice(letters.length - Math.floor(keep / 2)).join('');
  while (keep > 2 && wide(cut()) > room) keep--;
  return cut();
}

// A picture as wide as its letters need, which a narrow screen moves sideways: what the page's other pictures are.
function frame(owner, svg, size, ...below) {
  const wide = svg.viewBox.baseVal.width, picture = tag('div', {class: 'picture'}, tag('div', {style: `min-width:${Math.ceil(wide * 11 / size) + 1}px`}, svg));
  owner.replaceChildren(tag('p', {class: 'hint'}, '↔ wider than the screen: move the picture sideways'), picture, ...below);
  watch(picture);
  return picture;
}

// Thin arcs are hard to point at: broad ones that nobody sees lie under them.
function widen(arcs) {
  if (arcs.length) arcs[0].before(...Array.from(arcs, arc => make(arc.cloneNode(), {class: 't hit', stroke: 'transparent', 'stroke-width': 12}, [])));
}

const AROUND = 72;  // classes around one, at most

function classGraph(t) {
  const links = LINKS[t].slice(0, AROUND), upright = links.length <= 24, R = 270, room = 200;
  const order = [...links.filter(l => l.value > 0), ...links.filter(l => l.value < 0).reverse()];
  const size = upright ? 15 : SMALL, names = order.map(l => fitted(M.names[l.base], size, room - 46));
  pen.font = '600 ' + size + 'px system-ui, sans-serif';
  const half = R + 30 + Math.max(30, ...order.map((l, i) => pen.measureText(signed(l.value, 2) + ' ' + names[i]).width));
  const wide = 2 * half, ring = upright ? 2 * (R + 46) : wide, tall = ring + (upright ? 44 : 0);  // corners have room for the legend
  const middle = mark('g', {transform: `translate(${half} ${ring / 2})`});
  const arcs = mark('g', {fill: 'none', 'stroke-linecap': 'round', 'stroke-opacity': 0.9}), nodes = mark('g');
  middle.append(mark('circle', {r: R, fill: 'none', stroke: '#8c959f'}), arcs, nodes);
  order.forEach((l, i) => {
    const angle = 2 * Math.PI * (i + 0.5) / order.length - Math.PI / 2, c = Math.cos(angle), s = Math.sin(angle);
    const width = 1 + 11 * Math.abs(l.value) / MOST, swing = angle - 0.35, tip = linkTip(l);
    arcs.append(mark('path', {class: 'arc', d: `M0 0Q${R * 0.55 * Math.cos(swing)} ${R * 0.55 * Math.sin(swing)} ${R * c} ${R * s}`,
      stroke: colour(l.value), 'stroke-width': width, tip, 'data-base': l.base}));
    const look = {class: 't', 'data-base': l.base, tip, 'font-size': size}, flip = c < 0;
    nodes.append(mark('circle', {...look, cx: R * c, cy: R * s, r: 5, fill: colour(l.value)}));
    const plain = upright ? {x: (R + 13) * c, y: (R + 13) * s + 5}
      : {transform: `rotate(${angle * 180 / Math.PI + (flip ? 180 : 0)})`, x: flip ? -R - 11 : R + 11, y: 5};
    const value = signed(l.value, 2), name = names[i];
    const level = upright && Math.abs(c) < 0.05;
    if (level) plain.y += 10 * s;
    const label = mark('text', {...look, ...plain, 'text-anchor': level ? 'middle' : flip ? 'end' : 'start'});
    const amount = mark('tspan', {fill: colour(l.value), 'font-weight': 600}, value);
    label.append(...(flip ? [name + ' ', amount] : [amount, ' ' + name]));
    nodes.append(label);
  });
  widen(arcs.querySelectorAll('.arc'));
  const title = fitted(M.targets[t], 15, 300, 700), plate = pen.measureText(title).width / 2 + 14;
  nodes.append(mark('rect', {x: -plate, y: -15, width: 2 * plate, height: 30, rx: 15, fill: INK, stroke: '#fff', 'stroke-width': 2}),
    mark('text', {y: 5.5, 'text-anchor': 'middle', 'font-size': 15, 'font-weight': 700, fill: '#fff', tip: M.targets[t]}, title));
  if (!order.length) nodes.append(mark('text', {y: 44, 'text-anchor': 'middle', fill: PALE, 'font-size': 14}, 'no other class is used'));
  const legend = mark('g', {'font-size': SMALL});
  [[PLUS, 'added'], [MINUS, 'subtracted']].forEach(([c, text], i) => legend.append(
    mark('path', {d: `M16 ${tall - 36 + 20 * i}h26`, stroke: c, 'stroke-width': 5}), mark('text', {x: 50, y: tall - 31 + 20 * i}, text)));
  return mark('svg', {class: 'graph', viewBox: `0 0 ${wide} ${tall}`, fill: INK, role: 'img', 'aria-label': 'What ' + M.targets[t] + ' is made of'}, middle, legend);
}

function bars(t, most = 8) {
  const shown = Math.max(...M.best.map(k => Math.min(most, LINKS[k].length)));  // all cards are equally high
  const links = LINKS[t].slice(0, shown), tall = 20 * shown + 6, left = 142, right = 268;
  const svg = mark('svg', {class: 'graph', viewBox: `0 0 310 ${tall}`, fill: INK, 'font-size': 12, role: 'img', 'aria-label': M.targets[t]});
  const all = M.best.flatMap(k => LINKS[k].slice(0, shown).map(l => l.value)), low = Math.min(0, ...all), high = Math.max(0, ...all);
  const x = v => left + (right - left) * (v - low) / (high - low || 1);
  links.forEach((l, i) => {
    const y = 20 * i + 4, from = Math.min(x(0), x(l.value)), tip = linkTip(l);
    svg.append(mark('text', {x: left - 8, y: y + 12, 'text-anchor': 'end', tip}, fitted(M.names[l.base], 12, left - 10)),
      mark('rect', {x: from, y, width: Math.max(1, Math.abs(x(l.value) - x(0))), height: 15, fill: colour(l.value), tip}),
      mark('text', {x: 308, y: y + 12, 'text-anchor': 'end', fill: PALE}, signed(l.value, 2)));
  });
  svg.append(mark('path', {d: `M${x(0)} 0V${tall}`, stroke: INK, 'stroke-width': 1}));
  return svg;
}

// "Nice" steps for an axis.
function steps(low, high, about = 6) {
  const raw = (high - low || 1) / about, ten = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map(k => k * ten).find(s => s >= raw), values = [];
  for (let k = Math.ceil(low / step); k * step <= high + 1e-9 * step; k++) values.push(+(k * step).toPrecision(12));
  return values;
}

function scatter(t) {  // of one target, or of all (t is null)
  const links = t === null ? LINKS.flat() : LINKS[t], S = M.scatter;
  const top = t === null ? S.top : S.tops[t], zeros = t === null ? S.zero : S.zeros[t];
  const W = 980, left = 70, right = W - 24, up = 16, down = 400, strip = 486;
  const values = links.map(l => l.value), low = Math.min(0, ...bounds(values)), high = Math.max(0, ...bounds(values));
  const pad = 0.06 * (high - low || 1), x = v => left + (right - left) * v / (top * 1.02), y = v => down - (down - up) * (v - low + pad) / (high - low + 2 * pad);
  const svg = mark('svg', {class: 'graph', viewBox: `0 0 ${W} 548`, fill: INK, 'font-size': 13, role: 'img', 'aria-label': 'Correlation against coefficient'});
  for (const v of steps(low, high)) svg.append(mark('path', {d: `M${left} ${y(v)}H${right}`, stroke: v ? '#eaeef2' : '#8c959f'}),
    mark('text', {x: left - 8, y: y(v) + 4.5, 'text-anchor': 'end', fill: PALE}, String(v)));
  for (const v of steps(0, top, 8)) svg.append(mark('path', {d: `M${x(v)} ${strip}v5`, stroke: '#8c959f'}),
    mark('text', {x: x(v), y: strip + 20, 'text-anchor': 'middle', fill: PALE}, String(v)));
  if (links.length > 1500) density(svg, links, x, y); else for (const l of links) {
    svg.append(mark('circle', {cx: x(l.size), cy: y(l.value), r: t === null ? 3.5 : 5, fill: colour(l.value), 'fill-opacity': 0.9, class: 't',
      tip: linkTip(l) + '\ncorrelation ' + number(l.size), ...(t === null ? {'data-target': l.target} : {'data-base': l.base})}));
  }
  const peak = Math.max(1, ...zeros), high0 = strip - down - 26, step = top / zeros.length;
  zeros.forEach((n, i) => n && svg.append(mark('rect', {x: x(i * step) + 0.5, width: x(step) - x(0) - 1, y: strip - Math.max(1.5, high0 * n / peak),
    height: Math.max(1.5, high0 * n / peak), fill: '#8c959f', tip: n + (t === null ? ' pairs' : ' classes') + ' without a coefficient,\ncorrelation '
    + number(i * step) + ' to ' + number((i + 1) * step)})));
  const lam = t !== null && M.plain && M.columns.lam ? M.columns.lam[t] : null;
  if (lam && lam / 2 < top) {
    const late = x(lam / 2) > W - 100;
    svg.append(mark('path', {d: `M${x(lam / 2)} ${up}V${strip}`, stroke: INK, 'stroke-dasharray': '5 4'}),
      mark('text', {x: x(lam / 2) + (late ? -6 : 6), y: up + 12, 'text-anchor': late ? 'end' : 'start'}, 'λ/2'));
  }
  const zero = zeros.reduce((a, b) => a + b, 0).toLocaleString('en');
  svg.append(mark('path', {d: `M${left} ${strip}H${right}`, stroke: '#8c959f'}),
    mark('text', {x: (left + right) / 2, y: 540, 'text-anchor': 'middle'}, t === null ? 'correlation |E[f_i f_j]|' : 'correlation with ' + fitted(M.targets[t], 13, 300) + ', |E[f_i f_j]|'),
    mark('text', {transform: `translate(18 ${(up + down) / 2}) rotate(-90)`, 'text-anchor': 'middle'}, 'coefficient'),
    mark('text', {x: right, y: down + 18, 'text-anchor': 'end', fill: PALE}, zero + (t === null ? ' pairs' : ' classes') + ' with coefficient 0, counted by correlation'));
  return svg;
}

const bounds = values => values.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [0, 0]);

function density(svg, links, x, y) {  // too many dots: cells of 7 × 7 pixels, darker where more links are
  const cells = new Map(), side = 7;
  for (const l of links) {
    const key = Math.floor(x(l.size) / side) + ' ' + Math.floor(y(l.value) / side), cell = cells.get(key) || {n: 0, value: 0};
    cell.n++; cell.value += l.value; cells.set(key, cell);
  }
  const most = Math.log(1 + Math.max(...Array.from(cells.values(), c => c.n)));
  for (const [key, cell] of cells) {
    const [i, j] = key.split(' ').map(Number);
    svg.append(mark('rect', {x: i * side, y: j * side, width: side, height: side, fill: colour(cell.value),
      'fill-opacity': 0.2 + 0.8 * Math.log(1 + cell.n) / most, tip: cell.n + (cell.n > 1 ? ' links' : ' link')}));
  }
}

// The page: search, the class that was clicked, the table. The address keeps the class.
const C = M.columns, USED = M.names.map(() => []);
LINKS.flat().forEach(l => USED[l.base].push(l));
USED.forEach(row => row.sort((a, b) => Math.abs(b.value) - Math.abs(a.value)));
const times = new Map();
M.targets.forEach(name => times.set(name, (times.get(name) || 0) + 1));
const called = t => M.targets[t] + (times.get(M.targets[t]) > 1 ? ' (number ' + t + ')' : '');
// The target that a class around stands for: itself, or, of another network, the one of its name.
const targetOf = base => M.within ? base : M.targets.indexOf(M.names[base]);
const address = t => '#' + (times.get(M.targets[t]) > 1 ? 'number=' + t : 'class=' + encodeURIComponent(M.targets[t]));
const go = t => { if (t >= 0) location.hash = address(t); };

function asked() {  // the class of the address: #class=NAME, or #number=17
  const [key, ...rest] = location.hash.slice(1).split('=');
  let value = rest.join('=');
  try { value = decodeURIComponent(value); } catch { /* as it stands */ }
  if (key === 'class' && M.targets.includes(value)) return M.targets.indexOf(value);
  return /^(class|number)$/.test(key) && /^\d+$/.test(value) && +value < M.targets.length ? +value : null;
}

function named(t, text) {
  const link = tag('a', {href: address(t)}, text);
  return t < 0 ? text : link;
}

function numbers(t) {
  const at = key => C[key] ? C[key][t] : undefined, rows = [];
  const row = (label, value, tip) => value !== undefined && rows.push(tag('tr', {}, tag('td', {tip: tip || ''}, label), tag('td', {}, value)));
  const change = (before, after) => at(after) === undefined ? undefined : percent(at(before)) + ' → ' + percent(at(after));
  const plain = (key, digits) => at(key) === undefined ? undefined : number(at(key), digits);
  row('Relative error', plain('rel_error'), 'mean |f − s| ÷ mean |f|, of the logit f and the combination s');
  row('… on its own images', plain('positive_rel_error'));
  row('Absolute error', plain('abs_error'));
  row('Accuracy, all images', change('accuracy_before', 'accuracy_after'), 'before and after its logit is replaced by the combination');
  row('Accuracy, its own images', change('positive_before', 'positive_after'), at('positives') === undefined ? '' : number(at('positives'), 0) + ' images');
  row('Redundancy 1/(Cov⁻¹)ᵢᵢ', plain('redundancy', 4), 'the squared error that all other classes together leave; small: redundant');
  row('… of its size', at('unexplained') === undefined ? undefined : percent(at('unexplained')));
  row('Information in the others', at('information') === undefined ? undefined : at('unexplained') === 0 ? '∞' : number(at('information'), 2) + ' nats');
  row('Share in the near-null space', at('near_null') === undefined ? undefined : percent(at('near_null')));
  if (at('lam') !== null) row('λ', plain('lam'));
  row('λ_max', plain('lam_max'), 'above it every coefficient is zero');
  row('ε of Definition 1, and seen', at('epsilon') === undefined ? undefined : number(at('epsilon'), 2) + ', ' + number(at('epsilon_seen'), 2));
  if (M.often) row('Stable links', stable(t) + ' of ' + LINKS[t].length, 'chosen in at least 80 % of the bootstrap rounds');
  row('Explained', at('explained') === undefined ? undefined : percent(at('explained')));
  row('… by chance, 95th percentile', at('explained_by_chance') === undefined ? undefined : percent(at('explained_by_chance')));
  row('p against shuffled targets', plain('p_value'));
  return tag('table', {class: 'facts'}, tag('tbody', {}, ...rows));
}
const stable = t => LINKS[t].filter(l => l.often >= 0.8).length;

function equation(t) {
  const line = tag('p', {class: 'equation'}, tag('b', {}, M.targets[t]), ' ≈ ');
  LINKS[t].forEach((l, i) => {
    const sign = l.value < 0 ? (i ? '− ' : '−') : i ? '+ ' : '';
    const amount = tag('span', {class: l.value < 0 ? 'minus' : 'plus'}, sign + Math.abs(l.value).toFixed(2));
    line.append(tag('span', {tip: linkTip(l)}, amount, '·', named(targetOf(l.base), M.names[l.base])), ' ');
  });
  if (!LINKS[t].length) line.append('0');
  return line;
}

function usedBy(t) {
  const base = M.within ? t : M.names.indexOf(M.targets[t]), rows = base < 0 ? [] : USED[base];
  if (!rows.length) return [];
  const line = tag('p', {class: 'pale'});
  rows.slice(0, 12).forEach((l, i) => line.append(i ? ', ' : '', tag('span', {tip: linkTip(l)}, named(l.target, M.targets[l.target]), ' ',
    tag('span', {class: l.value < 0 ? 'minus' : 'plus'}, signed(l.value, 2)))));
  if (rows.length > 12) line.append(' and ' + (rows.length - 12) + ' more');
  return [tag('h4', {}, 'Used for'), line];
}

function welcome() {
  const list = M.best.slice(0, 6).map(t => tag('p', {}, named(t, called(t)), tag('span', {class: 'pale'}, ' relative error ' + number(C.rel_error[t], 2))));
  return [tag('h3', {}, 'Click or search a class'), tag('p', {class: 'pale'}, 'Its equation, its errors and its accuracies are shown here.'),
    tag('h4', {}, 'Smallest relative error'), ...list];
}

function show() {
  const t = asked(), one = t !== null;
  $('overview').hidden = one; $('class').hidden = !one; $('back').hidden = !one;
  if (one) {
    const most = LINKS[t].length > AROUND ? ', the ' + AROUND + ' largest of ' + LINKS[t].length : '';
    const about = 'What ' + called(t) + ' is made of: clockwise from the largest positive to the largest negative coefficient' + most + '.';
    const picture = frame($('class'), classGraph(t), SMALL, tag('figcaption', {}, about));
    picture.scrollLeft = (picture.scrollWidth - picture.clientWidth) / 2;  // the class is in the middle
  } else {
    $('class').replaceChildren();
    look();
  }
  $('panel').replaceChildren(...(one ? [tag('h3', {}, called(t)), equation(t), numbers(t), ...usedBy(t)] : welcome()));
  const about = 'Each dot is a class with a coefficient; below, those without (paper 5, Figure 3). ';
  $('scatter-about').textContent = !M.scatter ? 'A map does not hold the correlations of its logits. To see them here, name the logits: '
    + 'brickwork depend show MAP --logits LOGITS --out page.html'
    : (one ? about : about.replace('a class', 'a pair of classes')) + 'Moments over ' + M.scatter.rows.toLocaleString('en') + ' rows, neither centred nor scaled.'
    + (M.plain ? ' Below λ/2, Conjecture 1 expects no coefficient.' : '') + (one ? '' : ' Click a class to see its own.');
  if (M.scatter) frame($('scatter'), scatter(t), 13);
  document.querySelectorAll('#table tr.on').forEach(r => r.classList.remove('on'));
  if (one) rowOf[t].classList.add('on');
}

const share = key => ({of: t => C[key][t], text: v => percent(v)});
const COLUMNS = [
  {head: 'Class', left: true, of: t => M.targets[t], text: (v, t) => called(t)},
  {head: 'Others', of: t => LINKS[t].length, text: String},
  {head: 'Relative error', of: t => C.rel_error[t], text: v => number(v)},
  ...(C.positive_after ? [
    {head: 'Own images, before', tip: 'right before its logit is replaced', ...share('positive_before')},
    {head: 'after', tip: 'own images right after its logit is replaced', ...share('positive_after')},
    {head: 'All images, points', tip: 'change of the accuracy on all images, in points', of: t => 100 * (C.accuracy_after[t] - C.accuracy_before[t]),
      text: v => Math.abs(v) < 5e-5 ? '0' : signed(v)}] : []),
  ...(C.redundancy ? [{head: 'Redundancy', tip: '1/(Cov⁻¹)ᵢᵢ', of: t => C.redundancy[t], text: v => number(v, 4)}] : []),
  ...(C.unexplained ? [{head: 'of its size', ...share('unexplained')}] : []),
  ...(M.often ? [{head: 'Stable', tip: 'links chosen in at least 80 % of the bootstrap rounds', of: stable, text: String}] : []),
  ...(C.p_value ? [{head: 'p', tip: 'against shuffled targets', of: t => C.p_value[t], text: v => number(v)}] : []),
  {head: 'Largest coefficient', left: true, of: t => LINKS[t].length ? Math.abs(LINKS[t][0].value) : null,
    text: (v, t) => LINKS[t].slice(0, 1).map(l => signed(l.value, 2) + '·' + M.names[l.base]).join('')},
];
const rowOf = M.targets.map((_, t) => {
  const row = tag('tr', {}, ...COLUMNS.map(c => {
    const text = c.text(c.of(t), t);
    return tag('td', c.left ? {class: 'l', title: text} : {}, text);
  }));
  row.onclick = () => { go(t); $('panel').scrollIntoView({block: 'nearest'}); };
  return row;
});
const body = tag('tbody'), heads = COLUMNS.map((c, k) => {
  const head = tag('th', {class: c.left ? 'l' : undefined, tip: c.tip || '', tabindex: 0}, c.head);
  head.onclick = () => sort(k);
  head.onkeydown = e => { if (e.key === 'Enter') sort(k); };
  return head;
});
function sort(k) {
  const down = heads[k].getAttribute('aria-sort') === 'ascending', way = down ? -1 : 1, of = COLUMNS[k].of;
  heads.forEach(h => h.removeAttribute('aria-sort'));
  heads[k].setAttribute('aria-sort', down ? 'descending' : 'ascending');
  const none = v => v === null || Number.isNaN(v);
  const order = rowOf.map((_, t) => t).sort((a, b) => {
    const u = of(a), v = of(b);
    if (none(u) || none(v)) return none(u) - none(v) || a - b;
    return way * (u < v ? -1 : u > v ? 1 : 0) || a - b;
  });
  body.replaceChildren(...order.map(t => rowOf[t]));
}
$('table').append(tag('thead', {}, tag('tr', {}, ...heads)), body);
sort(2);

for (const t of M.best.filter(k => LINKS[k].length)) {
  const card = tag('div', {class: 'small', tabindex: 0}, tag('b', {title: called(t)}, M.targets[t]),
    tag('span', {class: 'pale'}, 'relative error ' + number(C.rel_error[t], 2)), bars(t));
  card.onclick = () => { go(t); scrollTo({top: 0, behavior: 'smooth'}); };
  card.onkeydown = e => { if (e.key === 'Enter') card.click(); };
  $('multiples').append(card);
}

let place = 0, hits = [];
function suggest() {
  const text = $('search').value.trim().toLowerCase(), plain = s => s.toLowerCase(), at = t => plain(called(t)).replaceAll('_', ' ');
  const score = t => at(t).indexOf(text.replaceAll('_', ' '));
  hits = text ? M.targets.map((_, t) => t).filter(t => score(t) >= 0).sort((a, b) => (score(a) > 0) - (score(b) > 0) || a - b).slice(0, 40) : [];
  place = Math.max(0, Math.min(place, hits.length - 1));
  const rows = hits.map((t, i) => {
    const row = tag('li', {class: i === place ? 'on' : ''}, called(t), tag('small', {}, number(C.rel_error[t], 2)));
    row.onmousedown = e => { e.preventDefault(); take(t); };
    return row;
  });
  if (text && !rows.length) rows.push(tag('li', {}, 'no class is called so'));
  $('matches').replaceChildren(...rows); $('matches').hidden = !rows.length;
}
function take(t) { $('search').value = ''; suggest(); go(t); }
$('search').oninput = () => { place = 0; suggest(); };
$('search').onblur = () => { $('matches').hidden = true; };
$('search').onkeydown = e => {
  if (e.key === 'Enter' && hits.length) take(hits[place]);
  else if (e.key === 'Escape') { $('search').value = ''; suggest(); }
  else if (e.key === 'ArrowDown' || e.key === 'ArrowUp') { place += e.key === 'ArrowDown' ? 1 : -1; suggest(); e.preventDefault(); }
};
$('back').onclick = () => { history.pushState(null, '', location.pathname + location.search + '#'); show(); };

// Arcs of what is pointed at stand out in the overview.
const whole = document.querySelector('#overview svg'), arcs = whole.querySelectorAll('.arc');
widen(arcs);
document.addEventListener('mousemove', e => {
  const node = e.target.closest && e.target.closest('#overview .t:not(.arc, .hit)');
  const key = node && (node.dataset.target !== undefined ? 'target' : 'base');
  whole.classList.toggle('dim', Boolean(node));
  if (node) arcs.forEach(a => a.classList.toggle('near', a.dataset[key] === node.dataset[key]));
});
document.addEventListener('click', e => {
  const node = e.target.closest && e.target.closest('svg [data-target], svg [data-base]');
  if (node) go(node.dataset.target !== undefined ? +node.dataset.target : targetOf(+node.dataset.base));
});
addEventListener('hashchange', show);
if (M.start !== null && !location.hash) history.replaceState(null, '', address(M.start));
show();
