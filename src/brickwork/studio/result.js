// ---- jobs and results

const exported = j => html`<a key=${j.job} class="exported"
  href=${link('/api/exported', 'file', j.made)}>Download ${j.made.split('/').pop()}</a>`;

const titled = j => html`<span class="what">${j.kind} <b>${j.title}</b></span> `;

// Work that runs or waits stands above the result, where whoever asked for it looks.
function Running() {
  const row = j => html`<li key=${j.job} data-job=${j.job}>${titled(j)}<progress max="1" value=${j.share}
    aria-label=${'Progress of ' + j.title}></progress> <span
    role="status">${j.cancelled ? 'cancelling before the next step' : j.words}</span> <button type="button" class="cancel"
    disabled=${j.cancelled} onClick=${() => cancel(j.job)}>Cancel</button></li>`;
  return html`<ul id="running" class="jobs">${S.jobs.filter(j => j.state === 'running').map(row)}</ul>`;
}

function History() {
  const row = j => html`<li key=${j.job} data-job=${j.job} class=${j.state}>${titled(j)}${
    j.state !== 'done' ? html`<span>${j.state}${j.error ? ': ' + j.error : ''}</span>`
    : html`<span>done in ${j.seconds} s</span> ${j.kind === 'export' ? exported(j) : html`<button type="button" class="see"
      aria-pressed=${String(Boolean(S.shown && S.shown.job === j.job))}
      onClick=${() => { if (j.kind === 'map') set({verb: 'merge'}); show(j.job).catch(told); }}>See it</button>`}`}</li>`;
  const over = S.jobs.filter(j => j.state !== 'running');
  return over.length ? html`<section aria-label="Jobs"><h2>Jobs</h2><ul id="jobs" class="jobs">${over.slice(0, 12).map(row)}</ul>
    </section>` : '';
}

function Compared({networks}) {
  const [own, ...parents] = networks;
  const row = (what, value) => html`<tr><th
    scope="row">${what}</th>${networks.map(n => html`<td>${value(n)}</td>`)}</tr>`;
  const judged = own.classes.filter(c => own.per_class[c] !== null).sort((a, b) => own.per_class[a] - own.per_class[b]);
  const list = own.classes.length > MANY ? judged.slice(0, MANY) : own.classes;  // of many, the worst
  const all = networks.some(n => n.among_all !== undefined && n.among_all !== n.accuracy);
  return html`<h3>Beside the networks it comes from</h3>
    <p class="note about">${own.name} chooses among its ${own.classes.length} classes;
      ${' '}${parents.map(p => p.name).join(' and ')} ${parents.length > 1 ? 'are each' : 'is'} asked among the classes taken
      from it, on test images of these${all ? ', and once among all its classes' : ''}${
      parents.some(p => p.classes.length === 1) ? '; with one class there is nothing to choose' : ''}. Milliseconds are of one image on this
      machine.</p>
    <div class="wide" tabindex="0" aria-label="Comparison"><table id="compared"><thead><tr><td>
      </td>${networks.map((n, k) => html`<th scope="col">${n.name}${k ? '' : ' (new)'}</th>`)}</tr></thead><tbody>
      ${row('accuracy', n => html`<b>${percent(n.accuracy)}</b>`)}
      ${all && row('among all its classes', n => n.among_all === undefined ? '' : percent(n.among_all))}
      ${list.map(c => row(c, n => c in n.per_class ? percent(n.per_class[c]) : ''))}
      ${row('test images', n => number(n.images))}${row('parameters', n => number(n.parameters))}
      ${row('weights', n => bytes(n.bytes))}${row('one image takes', n => time(n.ms))}</tbody></table></div>`;
}

function Confusion({own}) {
  const {classes, confusion} = own;
  if (!own.images) return '';
  if (own.mistakes) return html`<h3>What it confuses most</h3><ul
    id="confusion">${own.mistakes.map(([n, a, b]) => html`<li>${a} taken for ${b}: ${n} times</li>`)}</ul>`;
  const share = (i, j) => confusion[i][j] / Math.max(1, confusion[i].reduce((a, b) => a + b, 0));
  return html`<h3>What it takes for what</h3><div class="wide" tabindex="0" aria-label="Confusion matrix"><table
    id="confusion"><thead><tr><th>true \\ answered</th>${classes.map(c => html`<th scope="col">${c}</th>`)}</tr></thead>
    <tbody>
    ${classes.map((c, i) => html`<tr><th scope="row">${c}</th>${classes.map((d, j) => html`<td
      class=${i === j ? 'hit' : confusion[i][j] ? 'miss' : ''}
      style=${`--share:${Math.round(40 * share(i, j))}%`}>${confusion[i][j]}</td>`)}</tr>`)}</tbody></table></div>`;
}

function Samples({samples, name}) {
  if (!samples.length) return '';
  const said = (who, answer, truth) => html`<span
    class=${answer === truth ? '' : 'wrong'}>${who}: ${answer}${answer === truth ? '' : ' ✗'}</span>`;
  return html`<h3>Some test images, those first on which they differ</h3><div
    id="samples">${samples.map(s => html`<figure><img src=${s.image} alt=${'a test image of class ' + s.truth}
    height="64" />
    <figcaption><b>${s.truth}</b>${s.answers.map(([who, answer]) => said(who || name, answer, s.truth))}</figcaption>
      </figure>`)}</div>`;
}

function Code({title, text, id}) {
  const copy = async e => {
    const button = e.target;
    const done = navigator.clipboard.writeText(text).then(() => 'Copied', () => 'Select it and copy');
    button.textContent = await done;
    setTimeout(() => { button.textContent = 'Copy'; }, 1500);
  };
  return html`<details><summary>${title}</summary><button type="button" onClick=${copy}>Copy</button><pre id=${id}
    tabindex="0">${text}</pre></details>`;
}

// The picture fits its column, and is as large as it wants in a window of its own.
function Picture({svg}) {
  const inside = {__html: svg /* drawn by the server, every name in it escaped */};
  const close = () => set({larger: false});
  return html`<h3>Which channels decide for which class</h3>
    <div id="routes" class="picture" dangerouslySetInnerHTML=${inside}></div>
    <button type="button" id="enlarge" onClick=${() => set({larger: true})}>Larger</button>
    ${S.larger ? html`<dialog class="picture" aria-label="Routes" onClose=${close}
      ref=${d => { if (d && !d.open) d.showModal(); }}><button type="button" onClick=${close}>Close</button>
      <div dangerouslySetInnerHTML=${inside}></div></dialog>` : ''}`;
}

const STEPS = [
  'Click classes of networks on the left, or drag them onto the board.',
  'Choose how much of each network may stay, and press Build.',
  'Here the new network appears beside those it comes from: accuracy, size, time, images.',
  'Export it to ONNX, or take its folder. The commands that do the same stand below it.',
];

function Result() {
  const r = S.shown && S.shown.result, working = S.jobs.some(j => j.state === 'running' && j.kind !== 'map');
  if (!r) return html`<h2>Result</h2><${Running} /><div id="result" hidden></div>${working ? '' : html`<ol id="steps">${STEPS.map(words => html`<li>${words}</li>`)}</ol>`}`;
  const own = r.networks[0];
  // class by class: a network of which one class was taken cannot be asked among that one alone
  const gaps = r.networks.slice(1).flatMap(n => Object.entries(n.per_class).map(([c, a]) => a === null ? null : a - own.per_class[c]));
  const known = gaps.filter(gap => gap !== null && !Number.isNaN(gap));
  const behind = S.shown.kind === 'build' && known.length && known.reduce((a, b) => a + b, 0) / known.length > 0.01;
  return html`<${Running} /><div id="result"><h2>${r.folder}</h2><div class="numbers">
      <div><b id="accuracy">${r.accuracy === null ? 'no test images' : percent(r.accuracy)}</b>
        <p>of the test images right</p></div>
      <div><b>${number(r.parameters)}</b><p>parameters, ${bytes(own.bytes)}</p></div>
      <div><b>${r.classes.length > 8 ? r.classes.length : r.classes.join(', ')}</b><p>classes</p></div></div>
    <p class="row">${S.formats.map((to, k) => html`<button key=${to} type="button" class=${k ? '' : 'main'}
      id=${'export-' + to}
      onClick=${() => begin('/api/export', {model: r.folder, to})}>Export to ${FORMATS[to]}</button>`)}
      <a id="download" href=${link('/api/download', 'model', r.folder)}>Download the model folder</a>
      ${S.jobs.filter(j => j.kind === 'export' && j.title.startsWith(r.folder + ' to ')).map(j =>
        j.state === 'done' && exported(j))}</p>
    ${behind ? html`<p class="note">To come nearer to the networks it comes from: keep more of them, or add minutes of polish.</p>` : ''}
    ${r.notes.map(note => html`<p class="note">${note}</p>`)}
    <${Compared} networks=${r.networks} /><${Confusion} own=${own} /><${Samples} samples=${r.samples}
      name=${r.folder} />
    <h3>The same without the page</h3><${Code} title="As commands" id="commands" text=${r.commands} /><${Code}
      title="As Python" id="python" text=${r.python} />
    ${r.routes ? html`<${Picture} svg=${r.routes} />` : ''}</div>`;
}

