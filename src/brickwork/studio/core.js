// The studio's page: networks as cards, classes as chips, a board, jobs, and results beside their parents.
// Everything shown is in S; set() changes it and draws. What must outlive the page is on the server.
// The files follow each other in one script: core, board, verbs, networks, result, page.
'use strict';
const {html, render} = htmPreact;
const $ = id => document.getElementById(id);
const token = new URLSearchParams(location.search).get('token') || '';
const S = {
  models: [], jobs: [], deleted: [], formats: [], images: [], archs: [],  // the server's
  parts: [], name: 'mine', judge: '',  // the board
  verb: 'join', add: {model: '', data: '', base: '', name: 'grown'},
  forget: {model: '', classes: [], data: '', name: 'without'},
  merge: {models: ['', ''], data: ['', ''], method: 'match', weights: null, name: 'merged'},
  map: null, curves: {}, ready: false,
  size: null, error: '', shown: null, trial: null, imported: '', renaming: null, sought: {}, larger: false,
};

function set(change) {
  Object.assign(S, change);
  render(html`<${App} />`, $('app'));
  const held = S.parts.flatMap(p => p.classes);
  $('held').textContent = held.length ? 'On the board: ' + held.join(', ') : 'The board is empty';
}

async function ask(path, body, file) {
  const answer = await fetch(path, {
    method: body || file ? 'POST' : 'GET', keepalive: path === '/api/board',
    headers: {'X-Token': token, ...(body ? {'Content-Type': 'application/json'} : {})},
    body: file || (body && JSON.stringify(body)),
  });
  const value = await answer.json();
  if (!answer.ok) throw new Error(value.detail);
  return value;
}

const told = error => set({error: error.message});
const number = n => n.toLocaleString('en');
const percent = share => share === null || share === undefined ? '–' : (100 * share).toFixed(1) + ' %';
const time = ms => ms.toFixed(ms < 10 ? 2 : 0) + ' ms';
const bytes = n => n < 1e6 ? Math.max(1, Math.round(n / 1e3)) + ' kB' : (n / 1e6).toFixed(1) + ' MB';
const link = (path, key, value) => `${path}?token=${encodeURIComponent(token)}&${key}=${encodeURIComponent(value)}`;
const FORMATS = {onnx: 'ONNX', torch: 'plain torch'};
const usable = () => S.models.filter(m => !m.error);

// ---- the server's state

async function refresh() {
  const state = await ask('/api/state');
  delete state.board;
  const faults = new Map(S.models.map(m => [m.name, m.fault]));
  state.models.forEach(m => { m.fault = faults.get(m.name); });
  const there = new Set(state.models.map(m => m.name));
  const parts = S.parts.filter(p => there.has(p.model));
  set(state);
  if (parts.length < S.parts.length) changed({parts});
  else if (S.parts.length && !S.size) resize();
  count();
  follow();
}

// The list is there at once; what a card says more is found by loading the network and looking at its images.
let counting = false;
async function count() {
  if (counting) return;
  counting = true;
  for (let m; (m = usable().find(one => !one.card && !one.fault));) {
    try {
      m.card = await ask('/api/card?model=' + encodeURIComponent(m.name));
    } catch (error) {
      if (/being worked on/.test(error.message)) {  // again when the work is done
        if (!S.jobs.some(j => j.state === 'running')) setTimeout(count, 2000);
        break;
      }
      m.fault = error.message;
    }
    set({});
  }
  counting = false;
  curves();
}

let following = false;
async function follow() {
  if (following) return;
  following = true;
  try {
    while (S.jobs.some(j => j.state === 'running')) {
      await new Promise(done => setTimeout(done, 300));
      const before = new Set(S.jobs.filter(j => j.state === 'running').map(j => j.job));
      set({jobs: await ask('/api/jobs')});
      const over = S.jobs.filter(j => before.has(j.job) && j.state !== 'running');
      for (const j of over) {
        if (j.state === 'failed') set({error: `${j.title}: ${j.error}`});
        if (j.state !== 'done' && !S.shown) await showLast();
        if (j.state === 'done' && j.kind !== 'export') await show(j.job);
        if (j.state === 'done') nextNames(j.made);
      }
      if (over.length) await refresh();
      if (S.shown && over.some(j => j.job === S.shown.job)) {  // below the board on a phone, beside it elsewhere
        const part = $('outcome');
        part.scrollTop = 0;
        if (part.getBoundingClientRect().top > innerHeight - 80) part.scrollIntoView();
      }
    }
  } catch (error) { told(error); } finally { following = false; }
}

let showing = 0;  // only the result that was asked for last is shown
async function show(job) {
  const turn = ++showing, found = await ask('/api/jobs/' + job);
  if (!found.result) return;
  if (found.kind === 'map') set({map: found.result});
  else if (turn === showing) set({shown: found});
}

// The last network that was made, as when the page is opened.
async function showLast() {
  const last = S.jobs.find(j => j.state === 'done' && ['build', 'merge', 'add', 'forget'].includes(j.kind));
  if (last) await show(last.job);
}

// What was made keeps its name, so the forms go on to the next.
function nextNames(made) {
  const taken = new Set([...S.models.map(m => m.name), made]);
  const next = name => {
    let k = 2;
    const stem = name.replace(/-\d+$/, '');
    while (taken.has(`built/${name}`)) name = `${stem}-${k++}`;
    return name;
  };
  const forms = ['merge', 'add', 'forget'].map(form => [form, {...S[form], name: next(S[form].name)}]);
  set({name: next(S.name), ...Object.fromEntries(forms)});
  keep();
}

async function begin(path, body) {
  set({error: ''});
  try {
    const job = await ask(path, body);
    set({jobs: [job, ...S.jobs]});
    follow();
  } catch (error) { told(error); }
}

function make(path, body) {
  showing += 1;
  set({shown: null});
  begin(path, body);
}

const cancel = job => ask(`/api/jobs/${job}/cancel`, {})
  .then(j => set({jobs: S.jobs.map(k => k.job === j.job ? j : k)}), told);
const after = promise => promise.then(() => { set({error: '', renaming: null}); return refresh(); }).catch(told);

