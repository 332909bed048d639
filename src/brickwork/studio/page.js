// The studio's page: networks as blocks, classes as chips, a board of parts, Build.
'use strict';
const $ = id => document.getElementById(id);
const token = new URLSearchParams(location.search).get('token') || '';
const board = new Map();  // network -> {classes, data, budget}
let models = [];

function tag(name, attributes, ...inside) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...inside);
  return made;
}

async function ask(path, body) {
  const answer = await fetch(path, {
    method: body ? 'POST' : 'GET', headers: {'X-Token': token, ...(body ? {'Content-Type': 'application/json'} : {})},
    body: body && JSON.stringify(body),
  });
  const value = await answer.json();
  if (!answer.ok) {
    const detail = value.detail;
    throw new Error(Array.isArray(detail) ? detail.map(d => d.loc.slice(1).join('.') + ': ' + d.msg).join('; ') : detail);
  }
  return value;
}

const wanted = () => ({
  parts: [...board].map(([model, part]) => ({model, classes: part.classes, data: part.data, budget: part.budget})),
  name: $('name').value, judge: $('judge').value.trim(),
});

function put(model, name) {
  const known = models.find(m => m.name === model);
  if (!known || !known.classes.includes(name)) return;
  if (!board.has(model)) board.set(model, {classes: [], data: known.data, budget: 0.25});
  const part = board.get(model);
  if (part.classes.includes(name)) part.classes = part.classes.filter(c => c !== name);
  else part.classes = known.classes.filter(c => c === name || part.classes.includes(c));
  if (!part.classes.length) board.delete(model);
  draw();
}

function chip(model, name, used) {
  const made = tag('button', {type: 'button', class: used ? 'chip used' : 'chip', draggable: 'true', 'aria-pressed': String(used)}, name);
  made.addEventListener('click', () => put(model, name));
  made.addEventListener('dragstart', e => e.dataTransfer.setData('text/plain', JSON.stringify([model, name])));
  return made;
}

const facts = m => [m.arch, m.size || (m.parameters === null ? 'counting…' : m.parameters.toLocaleString('en') + ' parameters'),
  ...(m.brick ? ['a brick'] : [])].join(', ');

// The list is there at once; a network is counted by loading it, which takes a moment where it was cut.
async function count() {
  for (const m of models.filter(m => m.parameters === null)) {
    try { m.parameters = (await ask('/api/parameters?model=' + encodeURIComponent(m.name))).parameters; } catch (error) { m.size = error.message; }
    const shown = [...document.querySelectorAll('[data-model]')].find(b => b.dataset.model === m.name);
    if (shown) shown.querySelector('small').textContent = facts(m);
  }
}

function block(m) {
  if (m.error) return tag('div', {class: 'block'}, tag('h3', {}, m.name), tag('small', {}, m.error));
  const used = board.get(m.name);
  return tag('div', {class: 'block', 'data-model': m.name},
    tag('h3', {}, m.name), tag('small', {}, facts(m)),
    tag('div', {class: 'chips'}, ...m.classes.map(c => chip(m.name, c, Boolean(used && used.classes.includes(c))))));
}

function part(model, p) {
  const data = tag('input', {value: p.data, placeholder: 'digits:A, cifar10, a folder…', required: '', 'aria-label': 'Images of ' + model});
  data.addEventListener('input', () => { p.data = data.value; ready(); });
  const slider = tag('input', {type: 'range', min: '0.05', max: '1', step: '0.05', value: String(p.budget), 'aria-label': 'How much of ' + model});
  const share = tag('span', {}, Math.round(100 * p.budget) + ' % kept');
  slider.addEventListener('input', () => { p.budget = Number(slider.value); share.textContent = Math.round(100 * p.budget) + ' % kept'; resize(); });
  return tag('div', {class: 'part', 'data-part': model}, tag('h3', {}, model),
    tag('div', {class: 'chips'}, ...p.classes.map(c => chip(model, c, true))),
    tag('label', {}, 'Images', data), tag('label', {}, share, slider));
}

// Chips are made anew with every change; the keyboard stays on the one it pressed.
const CHIP = '[data-model], [data-part]';
function chipAt() {
  const chip = document.activeElement.closest('.chip'), owner = chip && chip.closest(CHIP);
  return owner ? [owner.dataset.model, owner.dataset.part, chip.textContent] : null;
}
function backTo([model, part, name]) {
  const owner = [...document.querySelectorAll(CHIP)].find(o => o.dataset.model === model && o.dataset.part === part);
  const chip = owner && [...owner.querySelectorAll('.chip')].find(c => c.textContent === name);
  (chip || $('drop')).focus({preventScroll: true});
}

function draw() {
  const at = chipAt();
  $('models').replaceChildren(...models.map(block));
  $('parts').replaceChildren(...[...board].map(([model, p]) => part(model, p)));
  $('hint').hidden = board.size > 0;
  if (at) backTo(at);
  const held = [...board].flatMap(([, p]) => p.classes);
  $('held').textContent = held.length ? 'On the board: ' + held.join(', ') : 'The board is empty';
  ready();
  resize();
}

function ready() {
  const bare = [...board].filter(([, p]) => !p.data.trim()).map(([model]) => model);
  $('build').disabled = !board.size || bare.length > 0;
  $('why').textContent = bare.length ? `Name images of ${bare.join(' and ')} above, as in digits:A: channels are chosen and repaired on them.` : '';
}

let asked = 0;  // answers may come in another order than they were asked for: the last question counts
async function resize() {
  const turn = ++asked;
  if (!board.size) { $('size').textContent = ''; return; }
  try {
    const result = await ask('/api/size', wanted());
    if (turn !== asked) return;
    $('size').textContent = `About ${result.parameters.toLocaleString('en')} parameters, ${Math.round(100 * result.parameters / result.of)} % of the networks; classes ${result.classes.join(', ')}.`;
    $('error').textContent = '';
  } catch (error) {
    if (turn !== asked) return;
    $('size').textContent = '';
    $('error').textContent = error.message;
  }
}

function show(result) {
  const right = result.accuracy === null ? 'no test images' : (100 * result.accuracy).toFixed(1) + ' %';
  const picture = tag('div', {id: 'routes', class: 'picture'});
  picture.innerHTML = result.routes;  // drawn by the server, every name in it escaped
  $('result').replaceChildren(
    tag('div', {class: 'numbers'},
      tag('div', {}, tag('b', {id: 'accuracy'}, right), tag('p', {}, 'of the test images right')),
      tag('div', {}, tag('b', {}, result.parameters.toLocaleString('en')), tag('p', {}, 'parameters')),
      tag('div', {}, tag('b', {}, result.classes.join(', ')), tag('p', {}, 'classes'))),
    tag('p', {}, 'Saved in ' + result.folder + '. ', tag('a', {id: 'download', href: '/api/download?token=' + encodeURIComponent(token) + '&model=' + encodeURIComponent(result.folder)}, 'Download the model folder')),
    ...result.notes.map(note => tag('p', {class: 'note'}, note)),
    picture);
  $('result').hidden = false;
}

async function follow(number) {
  for (;;) {
    const job = await ask('/api/jobs/' + number);
    $('bar').value = job.share;
    $('words').textContent = job.words;
    if (job.state === 'failed') throw new Error(job.error);
    if (job.state === 'done') return job.result;
    await new Promise(done => setTimeout(done, 300));
  }
}

$('form').addEventListener('submit', async e => {
  e.preventDefault();
  $('error').textContent = '';
  $('result').hidden = true;
  $('build').disabled = true;
  $('progress').hidden = false;
  try {
    show(await follow((await ask('/api/build', wanted())).job));
    models = await ask('/api/models');
    draw();
    count();
    $('result').scrollIntoView({block: 'nearest'});  // the list above has grown
  } catch (error) { $('error').textContent = error.message; }
  $('progress').hidden = true;
  ready();
});

const drop = $('drop');
drop.addEventListener('dragover', e => { e.preventDefault(); drop.classList.add('over'); });
drop.addEventListener('dragleave', () => drop.classList.remove('over'));
drop.addEventListener('drop', e => {
  e.preventDefault();
  drop.classList.remove('over');
  try {
    const [model, name] = JSON.parse(e.dataTransfer.getData('text/plain'));
    if (!(board.get(model) || {classes: []}).classes.includes(name)) put(model, name);
  } catch { /* something else was dropped */ }
});

// The bar leads to the board, and once the head of the list is out of sight, back to it.
const way = $('way'), start = document.querySelector('#shelf h2'), seen = new Map();
const watch = new IntersectionObserver(changes => {
  for (const change of changes) seen.set(change.target, change.isIntersecting);
  const there = seen.get($('board')) && !seen.get(start);
  way.textContent = there ? 'Back to the networks' : 'Go to the board';
  way.hash = there ? '#shelf' : '#drop';
}, {rootMargin: '0px 0px -40% 0px'});
[start, $('board')].forEach(part => watch.observe(part));
way.addEventListener('click', e => {  // the address keeps the token and nothing else
  e.preventDefault();
  const to = $(way.hash.slice(1));
  to.focus({preventScroll: true});
  (to === $('drop') ? $('board') : to).scrollIntoView();
});

ask('/api/models').then(value => { models = value; draw(); count(); }, error => { $('error').textContent = error.message; });
