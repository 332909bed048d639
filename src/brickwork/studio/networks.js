// ---- networks

const facts = m => [m.arch, m.fault || (m.card ? number(m.card.parameters) + ' parameters' : 'counting…'),
  bytes(m.bytes), ...(m.brick ? ['a brick'] : [])].join(', ');
const measured = c => c && [...(c.accuracy === null ? [] : [percent(c.accuracy) + (c.of ? ` of ${number(c.of)} test images` : ', by its record')]),
  ...(c.ms === null ? [] : [time(c.ms)])].join(', ');

function More({m}) {
  const renaming = S.renaming && S.renaming.model === m.name ? S.renaming : null;
  return html`<details class="more"><summary>More</summary><div class="row">
    ${m.error ? '' : S.formats.map(to => html`<button key=${to} type="button" class="export"
      onClick=${() => begin('/api/export', {model: m.name, to})}>Export to ${FORMATS[to]}</button>`)}
    <a href=${link('/api/download', 'model', m.name)}>Download the folder</a>
    <button type="button" class="rename"
      onClick=${() => set({renaming: renaming ? null : {model: m.name, to: m.name.split('/').pop()}})}>Rename</button>
    <button type="button" class="delete" onClick=${() => after(ask('/api/delete', {model: m.name}))}>Delete</button>
      </div>
    ${renaming ? html`<form class="row" onSubmit=${e => { e.preventDefault(); after(ask('/api/rename', renaming)); }}>
      <label>New name <input value=${renaming.to} ...${NAME}
        onInput=${e => set({renaming: {...renaming, to: e.target.value}})} /></label><button
        type="submit">Rename it</button></form>` : ''}</details>`;
}

const MANY = 60;  // classes that are shown of a network at a time

function Card({m, double}) {
  if (m.error) return html`<div class="block" data-model=${m.name}><h3>${m.name}</h3><small>${m.error}</small>
    <${More} m=${m} /></div>`;
  const used = S.parts.find(p => p.model === m.name), sought = (S.sought[m.name] || '').toLowerCase();
  const on = c => Boolean(used && used.classes.includes(c));
  const room = m.card ? measured(m.card) : (m.data || Object.keys(m.sources).length) && !m.fault;  // kept free, lest chips move under the pointer
  const fitting = m.classes.filter(c => c.toLowerCase().includes(sought)), left = fitting.length - MANY;
  return html`<div class="block" data-model=${m.name}><h3>${m.name}</h3><small>${facts(m)}</small>
    ${room ? html`<br /><small class="measured">${measured(m.card) || '…'}</small>` : ''}
    ${room ? html`<div class="pictures">${((m.card || {}).pictures || []).map(([name, picture]) => html`<img key=${name}
      src=${picture} alt=${'an image of class ' + name} title=${name} height="32" />`)}</div>` : ''}
    ${m.classes.length > MANY ? html`<input type="search" class="sought"
      placeholder=${`Find among ${number(m.classes.length)} classes`} aria-label=${'Find classes of ' + m.name}
      value=${S.sought[m.name] || ''} onInput=${e => set({sought: {...S.sought, [m.name]: e.target.value}})} />` : ''}
    <div class="chips">${fitting.slice(0, MANY).map(c => html`<${Chip} key=${c} model=${m.name} name=${c} used=${on(c)}
      double=${on(c) && double.has(c)} />`)}</div>
    ${left > 0 ? html`<small>and ${number(left)} more; type a part of their name</small>` : ''}<${More} m=${m} />
      </div>`;
}

const KINDS = {safetensors: 'safetensors', pth: 'pth', pt: 'pth'};

function Import() {
  const send = async e => {
    e.preventDefault();
    const form = e.target, file = form.elements.file.files[0], given = new FormData(form);
    given.delete('file');
    const ending = file.name.toLowerCase().split('.').pop();
    if (!(ending in KINDS)) {
      set({imported: ending === 'onnx'
        ? 'ONNX files cannot be imported: they hold a graph and no module that could be cut; send the .safetensors or .pth '
          + 'they were exported from.'
        : `Choose a .safetensors or .pth file, not .${ending}: tensors alone.`});
      return;
    }
    given.set('kind', KINDS[ending]);
    if (!given.get('size')) given.delete('size');
    set({imported: `Sending ${file.name}, ${bytes(file.size)}…`});
    try {
      const made = await ask('/api/import?' + new URLSearchParams(given), null, file);
      form.reset();
      set({imported: [`${made.model} is there.`, ...made.notes.map(n => n + '.')].join(' ')});
      await refresh();
    } catch (error) { set({imported: error.message}); }
  };
  return html`<details id="import"><summary>Import weights</summary>
    <form onSubmit=${send}>
      <label>File (.safetensors, or .pth of tensors alone) <input name="file" type="file"
        accept=".safetensors,.pth,.pt" required /></label>
      <label>Name <input name="name" ...${NAME} /></label>
      <label>Architecture <input name="arch" list="archs" required placeholder="lenet, timm:resnet18, …" /></label>
      <label>Classes, with commas <input name="classes" placeholder="cat,dog" /></label>
      <label>Mean <input name="mean" placeholder="0.5 or 0.5,0.5,0.5" /></label>
      <label>Std <input name="std" placeholder="0.25" /></label>
      <label>Size <input name="size" type="number" min="1" max="4096" placeholder="32" /></label>
      <button type="submit">Import</button></form>
    <p role="status" id="imported">${S.imported}</p></details>`;
}

let trying = 0;
async function tryOut(file) {
  if (!file) return;
  const turn = ++trying, rows = usable().map(m => ({model: m.name}));
  set({trial: {name: file.name, rows, seen: ''}});
  for (const row of rows) {
    const asked = ask('/api/try?model=' + encodeURIComponent(row.model), null, file);
    Object.assign(row, await asked.catch(error => ({error: error.message})));
    if (turn !== trying) return;
    set({});
  }
}

function Try() {
  const t = S.trial, drop = e => { e.preventDefault(); tryOut(e.dataTransfer.files[0]); };
  return html`<section id="try" aria-label="Try an image" onDragOver=${e => e.preventDefault()} onDrop=${drop}>
    <h2>Try it</h2>
    <label>Drop an image here, or choose one: every network's answer, side by side. <input type="file" accept="image/*"
      onChange=${e => tryOut(e.target.files[0])} /></label>
    ${t ? html`<div class="wide" tabindex="0" aria-label="Answers"><table><caption>${t.name}</caption><thead><tr>
      <th>network</th><th>sees</th><th>answers</th></tr></thead><tbody>
      ${t.rows.map(r => html`<tr key=${r.model}><th scope="row">${r.model}</th><td>${r.seen ? html`<img src=${r.seen}
        alt="" height="40" />` : ''}</td>
        <td>${r.error || (r.answers ? r.answers.map(([c, p], k) => html`<span
          class=${k ? 'less' : 'best'}>${c} ${percent(p)} </span>`) : '…')}</td></tr>`)}</tbody></table>
          </div>` : ''}</section>`;
}

