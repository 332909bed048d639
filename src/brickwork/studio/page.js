function App() {
  const double = twice();
  const tab = (verb, words) => html`<button type="button" id=${'verb-' + verb} aria-pressed=${String(S.verb === verb)}
    onClick=${() => { set({verb, error: ''}); keep(); }}>${words}</button>`;
  return html`<section id="shelf" aria-label="Networks" tabindex="-1"><h2>Networks</h2>
      ${S.ready && !S.models.length ? html`<p id="none">There are no networks in this folder yet. Import weights below, or train a
        first one: <code>brickwork train lenet digits:A --out FOLDER/a</code>, and load this page again.</p>` : ''}
      <div id="models">${S.models.map(m => html`<${Card} key=${m.name} m=${m} double=${double} />`)}</div>
      <div id="deleted">${S.deleted.slice(0, 3).map(d => html`<p key=${d.number}
        class="note">${d.model} was deleted. <button type="button" class="undo"
        onClick=${() => after(ask('/api/undelete', {number: d.number}))}>Undo</button></p>`)}</div>
      <${Import} /><${Try} />
      <datalist id="images">${S.images.map(name => html`<option key=${name} value=${name} />`)}</datalist><datalist
        id="archs">${S.archs.map(name => html`<option key=${name} value=${name} />`)}</datalist></section>
    <section id="board" aria-label="Board" ...${dropping}><h2>Board</h2>
      <div class="row verbs" role="group"
        aria-label="What to do">${tab('join', 'Join classes')}${tab('merge', 'Merge')}${
        tab('add', 'Add a class')}${tab('forget', 'Forget')}</div>
      ${S.verb === 'merge' ? html`<${Merge} />` : S.verb === 'add' ? html`<${Add} />`
        : S.verb === 'forget' ? html`<${Forget} />` : html`<${Join} />`}
      <${History} /></section>
    <section id="outcome" aria-label="Result"><${Result} /></section>
    <div id="toast" hidden=${!S.error}><p id="error" role="alert">${S.error}</p><button type="button"
      onClick=${() => set({error: ''})}>Close</button></div>`;
}

// The bar leads to the board, and once the head of the list is out of sight, back to it.
function watchWay() {
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
    const to = $(way.hash.slice(1)) || $('board');
    to.focus({preventScroll: true});
    (to === $('shelf') ? to : $('board')).scrollIntoView();
  });
}

set({});
watchWay();
ask('/api/state').then(({board, ...state}) => {
  set({...state, ...board, ...unsaved(), ready: true});
  nextNames();  // and tells the server, where the tab had something that it did not know
  if (S.parts.length) resize();
  count();
  follow();
  const map = S.jobs.find(j => j.state === 'done' && j.kind === 'map');
  if (map) show(map.job).catch(told);
  showLast().catch(told);
}, told);
