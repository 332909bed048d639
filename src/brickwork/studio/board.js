// ---- the board

const wanted = () => ({parts: S.parts, name: S.name, judge: S.judge.trim()});
const draft = () => ({...wanted(), verb: S.verb, merge: S.merge, add: S.add, forget: S.forget});
const bare = () => S.parts.filter(p => !p.data.trim()).map(p => p.model);

// The server keeps the newest draft. Until it says so the tab keeps it, too: a reload in between loses nothing.
const UNSAVED = 'unsaved ' + token;
let newest = null, sending = false;
async function keep() {
  newest = draft();
  sessionStorage.setItem(UNSAVED, JSON.stringify(newest));
  if (sending) return;
  sending = true;
  try {
    for (let sent = null; sent !== newest;) await ask('/api/board', sent = newest);
    sessionStorage.removeItem(UNSAVED);
  } catch { /* the tab still has it */ } finally { sending = false; }
}
const unsaved = () => JSON.parse(sessionStorage.getItem(UNSAVED) || 'null');

function changed(change) {
  set(change);
  keep();
  resize();
  curves();
}

// Forms other than the board's.
function edited(form, change) {
  set({[form]: {...S[form], ...change}});
  keep();
}

function put(model, name, only) {
  const known = S.models.find(m => m.name === model);
  if (!known || known.error || !known.classes.includes(name)) return;
  const part = S.parts.find(p => p.model === model) || {model, classes: [], data: known.data, budget: 0.25, polish: 0};
  const there = part.classes.includes(name);
  if (there && only) return;
  const classes = known.classes.filter(c => c === name ? !there : part.classes.includes(c));
  // a network made of parts knows the images of each class
  const own = [...new Set(classes.map(c => (known.sources || {})[c]))];
  const data = own.length === 1 && own[0] && (!part.data || Object.values(known.sources).includes(part.data)) ? own[0] : part.data;
  const rest = S.parts.includes(part) ? S.parts : [...S.parts, part];
  const parts = rest.map(p => p.model === model ? {...p, classes, data} : p);
  changed({parts: parts.filter(p => p.classes.length), verb: 'join'});
}

const edit = (model, change) => changed({parts: S.parts.map(p => p.model === model ? {...p, ...change} : p)});

function twice() {
  const owners = new Map();
  for (const p of S.parts) for (const c of p.classes) owners.set(c, [...(owners.get(c) || []), p.model]);
  return new Map([...owners].filter(([, models]) => models.length > 1));
}

let asked = 0;  // answers may come in another order than they were asked for: the last question counts
async function resize() {
  const turn = ++asked;
  if (!S.parts.length) { set({size: null}); return; }
  try {
    const size = await ask('/api/size', wanted());
    if (turn === asked) set({size, error: ''});
  } catch (error) {
    if (turn === asked) set({size: null, error: error.message});
  }
}

// ---- what may be expected of a part: accuracy and time over its budget, computed by the server meanwhile

const LARGE = 5e6;  // parameters from which a curve is computed only when asked for: it would hold up other work
const keyOf = p => JSON.stringify([p.model, p.classes, p.data.trim()]);
const curveOf = p => S.curves[keyOf(p)];
const large = p => { const m = S.models.find(one => one.name === p.model); return !m || !m.card || m.card.parameters > LARGE; };
const asking = new Set();  // curves of large networks that were asked for

let curving = null;
function curves(wait = 500) {
  clearTimeout(curving);
  curving = setTimeout(async () => {
    const open = S.parts.filter(p => p.data.trim() && !(curveOf(p) || {}).done && (!large(p) || asking.has(keyOf(p))));
    for (const p of open) {
      const {model, classes} = p, key = keyOf(p);
      const found = await ask('/api/curve', {model, classes, data: p.data.trim(), large: asking.has(key)})
        .catch(error => ({done: true, rows: [], error: error.message}));
      set({curves: {...S.curves, [key]: found}});
    }
    if (open.length) curves(700);
  }, wait);
}

// Between the budgets that were measured, a straight line.
function expected(p, what) {
  const rows = ((curveOf(p) || {}).rows || []).filter(r => r[what] !== null);
  const above = rows.find(r => r.budget >= p.budget), below = [...rows].reverse().find(r => r.budget <= p.budget);
  if (!above || !below) return null;
  if (above === below) return above[what];
  return below[what] + (above[what] - below[what]) * (p.budget - below.budget) / (above.budget - below.budget);
}

function expectedTime() {
  const times = S.parts.map(p => expected(p, 'ms'));
  return times.length && times.every(t => t !== null) ? times.reduce((a, b) => a + b, 0) : null;
}

const WIDE = 284, HIGH = 44, THUMB = 8;  // the curve stands above its slider
const across = budget => THUMB + (WIDE - 2 * THUMB) * (budget - 0.05) / 0.95;

// One class is told from the others, several from each other.
const quality = c => c.by === 'auroc' ? a => `AUROC ${a.toFixed(3)}` : a => percent(a) + ' right';

function expectedWords(p) {
  const c = curveOf(p), rows = c ? c.rows.filter(r => r.accuracy !== null) : [];
  if (!c || (c.error && !rows.length)) return c ? `; no curve: ${c.error}` : '';
  if (expected(p, 'accuracy') === null) return c.done ? '; it cannot be as narrow as that' : '; trying several budgets…';
  const whole = rows.find(r => r.budget === 1);
  return `: about ${quality(c)(expected(p, 'accuracy'))}${whole ? `, whole ${quality(c)(whole.accuracy)}` : ''}; ${
    time(expected(p, 'ms'))}${c.done ? '' : ' …'}`;
}

function Curve({p}) {
  const c = curveOf(p), rows = c ? c.rows.filter(r => r.accuracy !== null) : [];
  const waits = !c && S.models.some(m => m.name === p.model && m.card && m.card.parameters > LARGE);
  if (p.data.trim() && !asking.has(keyOf(p)) && (waits || (c && c.error && !rows.length))) {
    return html`<button type="button" class="ask-curve" onClick=${() => { asking.add(keyOf(p)); set({curves: {...S.curves, [keyOf(p)]: undefined}}); curves(0); }}>Accuracy at
      several budgets (takes a while)</button>`;
  }
  if (rows.length < 2) return '';
  const said = quality(c), share = r => Math.round(100 * r.budget) + ' % kept';
  const low = Math.min(...rows.map(r => r.accuracy), 0.98), up = a => 6 + (HIGH - 12) * (1 - (a - low) / (1 - low));
  return html`<svg class="curve" viewBox=${`0 0 ${WIDE} ${HIGH}`} width=${WIDE} height=${HIGH} role="img"
    aria-label=${'Accuracy by budget: ' + rows.map(r => `${share(r)}: ${said(r.accuracy)}`).join(', ')}>
    <line x1=${across(p.budget)} x2=${across(p.budget)} y1="0" y2=${HIGH} class="now" />
    <polyline points=${rows.map(r => `${across(r.budget)},${up(r.accuracy)}`).join(' ')} />
    ${rows.map(r => html`<circle cx=${across(r.budget)} cy=${up(r.accuracy)} r="3.5"><title>${share(r)}: ${
      said(r.accuracy)}, ${time(r.ms)}</title></circle>`)}</svg>`;
}

function Chip({model, name, used, double}) {
  return html`<button type="button" class=${'chip' + (used ? ' used' : '') + (double ? ' twice' : '')} draggable="true"
    aria-pressed=${String(used)}
    onClick=${() => put(model, name)}
      onDragStart=${e => e.dataTransfer.setData('text/plain', JSON.stringify([model, name]))}>${name}</button>`;
}

function Part({p, double}) {
  return html`<div class="part" data-part=${p.model}><h3>${p.model}</h3>
    <div class="chips">${p.classes.map(c => html`<${Chip} key=${c} model=${p.model} name=${c} used=${true}
      double=${double.has(c)} />`)}</div>
    <label class="inline">Images <input list="images" value=${p.data} placeholder="digits:A, cifar10, a folder…" required
      aria-label=${'Images of ' + p.model} onInput=${e => edit(p.model, {data: e.target.value})} /></label>
    <${Curve} p=${p} />
    <label class="budget"><span>${Math.round(100 * p.budget)} % kept${expectedWords(p)}</span><input type="range" min="0.05" max="1" step="0.05"
      value=${p.budget} aria-label=${'How much of ' + p.model}
      onInput=${e => edit(p.model, {budget: Number(e.target.value)})} /></label>
    <label class="inline"><span>${p.polish && p.budget < 1 ? p.polish + ' min of polish' : 'no polish'}</span><input type="range"
      min="0" max="5" step="0.25" value=${p.polish} disabled=${p.budget === 1}
      aria-label=${'Minutes of polish of the part of ' + p.model}
      title="Minutes of training towards the whole network's answers, without labels"
      onInput=${e => edit(p.model, {polish: Number(e.target.value)})} /></label>
  </div>`;
}

const NAME = {  // what a new folder may be called
  required: true, pattern: '[A-Za-z0-9_][A-Za-z0-9_.\\-]*', maxlength: 64,
  title: 'Letters, digits, dots, - and _, at most 64; no dot or - at the beginning',
};

// Classes may be dropped anywhere on the board, whatever form it shows.
const dropping = {
  onDragOver: e => { e.preventDefault(); e.currentTarget.classList.add('over'); },
  onDragLeave: e => e.currentTarget.classList.remove('over'),
  onDrop: e => {
    e.preventDefault();
    e.currentTarget.classList.remove('over');
    try { put(...JSON.parse(e.dataTransfer.getData('text/plain')), true); } catch { /* something else was dropped */ }
  },
};

function Join() {
  const double = twice(), missing = bare(), size = S.size, ms = expectedTime();
  return html`<div id="drop" tabindex="0" aria-label="Drop classes here">
      ${S.parts.length ? '' : html`<p id="hint">Drop classes here, or click them.</p>`}
      <div id="parts">${S.parts.map(p => html`<${Part} key=${p.model} p=${p} double=${double} />`)}</div>
      ${S.parts.length ? html`<button type="button" id="clear"
        onClick=${() => changed({parts: []})}>Clear the board</button>` : ''}</div>
    <p id="twice"
      role="alert">${[...double].map(([c, models]) =>
        `${models.join(' and ')} both bring class '${c}'; take it off one of them.`).join(' ')}</p>
    <div class="foot"><p id="size"
      role="status">${size && `About ${number(size.parameters)} parameters, ${bytes(size.bytes)}, ${
        Math.round(100 * size.parameters / size.of)} % of the networks${ms === null ? '' : `, ${time(ms)} an image`}; classes ${
        size.classes.join(', ')}.`}</p>
    <form id="form" onSubmit=${e => { e.preventDefault(); make('/api/build', wanted()); }}>
      <label>Name <input id="name" value=${S.name} ...${NAME}
        onInput=${e => { set({name: e.target.value}); keep(); }} /></label>
      <label>Judge by <input id="judge" list="images" value=${S.judge} placeholder="own images"
        title="Images as on the command line: digits:A, a folder below the studio's, an .npz"
        onInput=${e => { set({judge: e.target.value}); keep(); }} /></label>
      <button id="build" class="main" type="submit"
        disabled=${!S.parts.length || missing.length > 0 || double.size > 0}>Build</button></form>
    <p id="why"
      role="status">${missing.length
        ? `Name images of ${missing.join(' and ')} above, as in digits:A: channels are chosen and repaired on them.`
        : ''}</p></div>`;
}

