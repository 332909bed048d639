// ---- verbs beside the board: merge two networks, give one a new class, take one away

const METHODS = {
  match: 'match: layer by layer, to the answers each network gave',
  rebasin: 'rebasin: channels in one order, then the mean',
  linear: 'linear: the weighted sum',
};

function Choice({label, value, onPick}) {
  return html`<label>Network <select required value=${value} aria-label=${label}
    onChange=${e => onPick(S.models.find(one => one.name === e.target.value))}><option
    value="">choose…</option>${usable().map(one => html`<option key=${one.name} value=${one.name}>${one.name}</option>`)}
    </select></label>`;
}

function Images({label, words, value, onPick}) {
  return html`<label>${words} <input list="images" required value=${value} aria-label=${label}
    placeholder="digits:A, a folder…" onInput=${e => onPick(e.target.value)} /></label>`;
}

// One cell for each weighted sum; arrow keys go from cell to cell.
function WeightMap() {
  const m = S.merge, found = S.map && S.map.map;
  if (!found || found.models.join() !== m.models.join()) return '';
  const {alpha, beta, worst, balanced} = found, [a, b] = m.weights || [balanced.alpha, balanced.beta];
  const best = Math.max(...worst.flat()), least = Math.min(...worst.flat());
  const moved = e => {
    const step = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1]}[e.key];
    const at = e.target.dataset && e.target.dataset.cell;
    if (!step || !at) return;
    e.preventDefault();
    const [i, j] = at.split(',').map(Number);
    const to = e.currentTarget.querySelector(`[data-cell='${i + step[1]},${j + step[0]}']`);
    if (to) to.focus();
  };
  const cell = (i, j) => html`<td key=${j}><button type="button" data-cell=${`${i},${j}`}
    tabindex=${a === alpha[j] && b === beta[i] ? 0 : -1}
    aria-pressed=${String(Boolean(m.weights) && a === alpha[j] && b === beta[i])}
    aria-label=${`${(100 * worst[i][j]).toFixed(0)} per cent at α ${alpha[j]}, β ${beta[i]}`}
    style=${`--share:${Math.round(40 * (worst[i][j] - least) / Math.max(1e-9, best - least))}%`}
    onClick=${() => edited('merge', {method: 'linear', weights: [alpha[j], beta[i]]})}>${(100 * worst[i][j]).toFixed(0)}
    </button></td>`;
  return html`<div id="map"><h3>Weighted sums α·${found.models[0]} + β·${found.models[1]}</h3>
    <p class="note">Per cent right on the test images${new Set(found.data).size > 1 ? ', of the worse data set' : ''}. Click a
      cell to merge with its weights; best here: α = ${balanced.alpha}, β = ${balanced.beta} with ${percent(balanced.worst)}.
      ${' '}<i>match</i>, which solves each layer instead of adding weights up, is often better than every cell.</p>
    <div class="wide"><table onKeyDown=${moved}><tbody>${[...beta.keys()].reverse().map(i => html`<tr key=${i}><th
      scope="row">β ${beta[i]}</th>${alpha.map((_, j) => cell(i, j))}</tr>`)}
      <tr><td></td>${alpha.map(x => html`<th scope="col">α ${x}</th>`)}</tr></tbody></table></div></div>`;
}

function Merge() {
  const m = S.merge, put = (list, k, value) => list.map((old, i) => i === k ? value : old);
  const choose = (k, known) => edited('merge', {
    models: put(m.models, k, known ? known.name : ''), data: put(m.data, k, (known && known.data) || m.data[k]), weights: null,
  });
  const ready = m.models.every(Boolean) && m.data.every(d => d.trim()), [a, b] = m.weights || [];
  return html`<p>Two networks of one architecture with the same classes, trained apart, become one of the same size.</p>
    <form id="merging" onSubmit=${e => { e.preventDefault(); make('/api/merge', m); }}>
      ${['First network', 'Second network'].map((label, k) => html`<fieldset key=${k}><legend>${label}</legend>
        <${Choice} label=${label} value=${m.models[k]} onPick=${known => choose(k, known)} />
        <${Images} label=${k ? 'Images of the second' : 'Images of the first'} words="Its images" value=${m.data[k]}
          onPick=${value => edited('merge', {data: put(m.data, k, value)})} /></fieldset>`)}
      <label>Method <select value=${m.method}
        onChange=${e => edited('merge', {method: e.target.value, weights: null})}>${
        Object.entries(METHODS).map(([key, words]) => html`<option key=${key} value=${key}>${words}</option>`)}</select></label>
      <label>Name <input value=${m.name} ...${NAME} onInput=${e => edited('merge', {name: e.target.value})} /></label>
      <button id="merge" class="main" type="submit">${m.weights ? `Merge at α = ${a}, β = ${b}` : 'Merge'}</button>
      <button id="ask-map" type="button" disabled=${!ready}
        onClick=${() => begin('/api/map', {models: m.models, data: m.data})}>Map of weighted sums</button></form>
    <${WeightMap} />`;
}

function Add() {
  const a = S.add;
  return html`<p>A network learns classes it does not know, from a folder of images of them. Its old answers stay as they are,
      to the bit; the new ones are fitted on what its last layer sees.</p>
    <form id="adding" onSubmit=${e => { e.preventDefault(); make('/api/add', a); }}>
      <${Choice} label="Network to add to" value=${a.model}
        onPick=${known => edited('add', {model: known ? known.name : '', base: (known && known.data) || a.base})} />
      <${Images} label="Images of the new classes" words="Images of the new classes" value=${a.data}
        onPick=${data => edited('add', {data})} />
      <${Images} label="Images of the classes it knows" words="Images of the classes it knows" value=${a.base}
        onPick=${base => edited('add', {base})} />
      <label>Name <input value=${a.name} ...${NAME} onInput=${e => edited('add', {name: e.target.value})} /></label>
      <button id="add" class="main" type="submit">Add</button></form>
    <p class="note">New images: a folder with one folder per class, or the folder of one class, which is then called by the
      folder's name.</p>`;
}

function Forget() {
  const f = S.forget, known = S.models.find(m => m.name === f.model);
  const turn = c => edited('forget', {classes: f.classes.includes(c) ? f.classes.filter(d => d !== c) : [...f.classes, c]});
  return html`<p>A network loses classes: not their outputs alone, but what its layers know of them. Nothing is trained.</p>
    <form id="forgetting" onSubmit=${e => { e.preventDefault(); make('/api/forget', f); }}>
      <${Choice} label="Network that forgets" value=${f.model} onPick=${m => edited('forget',
        {model: m ? m.name : '', classes: [], data: (m && m.data) || f.data})} />
      <${Images} label="Images of all its classes" words="Images of all its classes" value=${f.data}
        onPick=${data => edited('forget', {data})} />
      ${known && known.classes ? html`<fieldset><legend>Classes to forget</legend><div
        class="chips">${known.classes.map(c => html`<button key=${c} type="button"
        class=${'chip' + (f.classes.includes(c) ? ' used' : '')} aria-pressed=${String(f.classes.includes(c))}
        onClick=${() => turn(c)}>${c}</button>`)}</div></fieldset>` : ''}
      <label>Name <input value=${f.name} ...${NAME} onInput=${e => edited('forget', {name: e.target.value})} /></label>
      <button id="forget" class="main" type="submit" disabled=${!f.classes.length}>Forget</button></form>`;
}
