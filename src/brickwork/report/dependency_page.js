// The page of a dependency map: search, the class that was clicked, the table. The address keeps the class.
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
if (arcs.length) widen(arcs[0].parentNode);
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
