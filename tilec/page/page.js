const all = (q) => [...document.querySelectorAll(q)];
function open_(id) {
  for (const x of all('[data-pass]')) x.classList.toggle('on', x.dataset.pass === id);
}
function show() {
  const first = document.querySelector('section.on .lit');
  if (first) first.scrollIntoView({block: 'center'});
}
function light(line) {
  for (const x of all('.at')) x.classList.toggle('lit', x.dataset.line === line);
}
document.addEventListener('click', (e) => {
  const pass = e.target.closest('a.pass');
  if (pass) { open_(pass.dataset.pass); history.replaceState(null, '', pass.getAttribute('href')); e.preventDefault(); return; }
  const at = e.target.closest('.at');
  if (!at) return;
  light(at.classList.contains('lit') ? null : at.dataset.line);
  if (!at.closest('main')) show();
});
document.addEventListener('mouseover', (e) => { // the edges of the node under the pointer
  const node = e.target.closest('[data-node]');
  for (const x of all('section.on path')) x.classList.toggle('near', !!node && x.dataset.ends.split(' ').includes(node.dataset.node));
});
const wanted = location.hash.match(/^#(?:pass-(\d+)|(code))$/);
open_(wanted ? wanted[1] || wanted[2] : '1');
const line = new URLSearchParams(location.search).get('line');
if (line) { light(line); addEventListener('load', () => setTimeout(show)); } // after the jump to the hash
