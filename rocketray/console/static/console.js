// The live parts of the console: the tail, the parts of pages that are sent again, and notices.
'use strict';

const ROWS_MAX = 500;
const HELD_MAX = 2000;
const STREAMS_MAX = 4;
const TIME = new Intl.DateTimeFormat('en', {
  hour: '2-digit', minute: '2-digit', second: '2-digit', fractionalSecondDigits: 3, hourCycle: 'h23',
});
const body = document.body;
const notice = document.getElementById('notice');

function say(text) {
  notice.hidden = !text;
  if (notice.textContent !== text) notice.textContent = text;
}

// Calls the handlers with the events of a stream while the tab is visible. A browser has six
// connections to a server, and a stream holds one, so STREAMS_MAX windows have one at a time: the
// oldest pauses for a newer one, and continues when it is used or when one of the newer ones ends.
function follow(address, handlers, opened) {
  const own = crypto.getRandomValues(new Uint32Array(2)).join('-');
  const windows = new BroadcastChannel('streams');
  const newer = new Set();
  let since = 0;
  let source = null;
  let wasAway = false;
  let isPaused = false;
  let last = '';
  const away = (text) => { wasAway = true; say(text); };
  const here = () => {
    if (!wasAway) return;
    wasAway = false;
    say(body.dataset.back);
    setTimeout(() => { if (!wasAway) say(''); }, 4000);
  };
  const close = () => {
    if (source) source.close();
    source = null;
    windows.postMessage({ closed: own });
  };
  const open = () => {
    if (source) source.close();
    newer.clear();
    since = performance.timeOrigin + performance.now();
    windows.postMessage({ opened: own, since });
    source = new EventSource(last ? `${address}${address.includes('?') ? '&' : '?'}after=${last}` : address);
    source.onopen = () => {
      if (isPaused) say('');
      isPaused = false;
      if (opened) opened(Boolean(last));
    };
    source.onerror = () => {
      away(body.dataset.lost);
      if (source && source.readyState === EventSource.CLOSED) {
        close();
        setTimeout(resume, 2000);
      }
    };
    source.addEventListener('node', (event) => {
      const value = JSON.parse(event.data);
      menu(value.menu);
      if (value.away) away(`${body.dataset.away} (${value.away})`); else here();
    });
    for (const [name, handle] of Object.entries(handlers)) {
      source.addEventListener(name, (event) => {
        last = event.lastEventId;
        const value = JSON.parse(event.data);
        handle(value);
        menu(value.menu);
        if (name === 'live') here();
      });
    }
  };
  const resume = () => { if (!document.hidden && !source) open(); };
  windows.onmessage = ({ data }) => {
    if (data.since > since) newer.add(data.opened); else newer.delete(data.closed);
    if (source && newer.size >= STREAMS_MAX) {
      source.close();
      source = null;
      isPaused = true;
      say(body.dataset.windows);
    } else if (data.closed && newer.size < STREAMS_MAX) resume();
  };
  document.addEventListener('visibilitychange', () => (document.hidden ? close() : resume()));
  window.addEventListener('focus', resume);
  window.addEventListener('pagehide', close);
  if (!document.hidden) open();
}

// The menu has badges, which change while a page is open.
const nav = document.querySelector('nav');
let menuBefore = '';

function menu(html) {
  if (!html || html === menuBefore || nav.contains(document.activeElement)) return;
  nav.innerHTML = html;
  menuBefore = html;
  fade();
}

// On a narrow screen the menu scrolls: an end that fades says that it goes on.
function fade() {
  nav.classList.toggle('more', nav.scrollLeft + nav.clientWidth < nav.scrollWidth - 2);
}

// A table sorts by a click on a heading, numbers from the greatest on. On a phone each row is a
// card, whose values need their headings. A part that is sent again gets the order it had.
const orders = new Map();

function dress(root) {
  for (const table of root.querySelectorAll('table.sorts')) {
    const headings = [...table.tHead.rows[0].cells];
    const labels = headings.map((heading) => heading.textContent);
    table.classList.add('cards');
    for (const row of table.tBodies[0].rows) {
      if (row.cells.length !== labels.length) continue;
      [...row.cells].forEach((each, column) => { if (column) each.dataset.label = labels[column]; });
    }
    headings.forEach((heading, column) => {
      if (heading.classList.contains('still')) return;
      const button = document.createElement('button');
      button.className = 'sort';
      button.id = `sort-${nameOf(table)}-${column}`;
      button.textContent = labels[column];
      button.addEventListener('click', () => {
        const before = orders.get(nameOf(table));
        const isDown = before?.column === column ? !before.isDown : heading.classList.contains('n');
        orders.set(nameOf(table), { column, isDown });
        sort(table);
      });
      heading.replaceChildren(button);
    });
    sort(table);
  }
}

function nameOf(table) { return table.closest('.scroll').getAttribute('aria-label'); }

function sort(table) {
  const order = orders.get(nameOf(table));
  if (!order) return;
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading) => heading.removeAttribute('aria-sort'));
  const heading = headings[order.column];
  if (!heading) return;
  heading.setAttribute('aria-sort', order.isDown ? 'descending' : 'ascending');
  const isNumber = heading.classList.contains('n');
  const groups = []; // a row, and those that stay below it
  for (const row of table.tBodies[0].rows) {
    if (row.classList.contains('below') && groups.length) groups.at(-1).rows.push(row);
    else groups.push({ value: valueOf(row.cells[order.column], isNumber), rows: [row] });
  }
  groups.sort((one, other) => {
    if (one.value === null || other.value === null) return (one.value === null) - (other.value === null);
    const sign = order.isDown ? -1 : 1;
    return sign * (isNumber ? one.value - other.value : one.value.localeCompare(other.value, undefined, { numeric: true }));
  });
  table.tBodies[0].append(...groups.flatMap((each) => each.rows));
}

// What is not known is null, which is last in both directions.
function valueOf(found, isNumber) {
  const text = found?.dataset.sort ?? found?.textContent.trim() ?? '';
  if (!isNumber) return text || null;
  const number = Number.parseFloat(text.replaceAll(/[^\d.-]/g, ''));
  return Number.isNaN(number) ? null : number;
}

function placeOf(element) {
  if (!element) return null;
  return element.id ? `#${CSS.escape(element.id)}` : element.href && `a[href="${CSS.escape(element.getAttribute('href'))}"]`;
}

function livePart(part) {
  const json = location.pathname;
  follow(json + location.search, {
    live: ({ html }) => {
      const inside = part.contains(document.activeElement);
      const place = inside ? placeOf(document.activeElement) : null;
      const selection = getSelection();
      if (!selection.isCollapsed && part.contains(selection.anchorNode)) return;
      const scrolled = [...part.querySelectorAll('.scroll')].map((each) => [each.scrollLeft, each.scrollTop]);
      const region = inside && !place ? [...part.querySelectorAll('.scroll')].indexOf(document.activeElement) : -1;
      part.innerHTML = html;
      dress(part);
      part.querySelectorAll('.scroll').forEach((each, at) => {
        if (scrolled[at]) [each.scrollLeft, each.scrollTop] = scrolled[at];
        if (at === region) each.focus();
      });
      if (place) part.querySelector(place)?.focus();
    },
  });
}

function cell(row, text, kind) {
  const made = row.insertCell();
  made.textContent = text ?? '–';
  if (kind) made.className = kind;
  return made;
}

function rowOf(message) {
  const row = document.createElement('tr');
  const isMatch = message.verdict === 'matched';
  row.className = isMatch ? 'match' : 'out';
  cell(row, TIME.format(message.time));
  const place = document.createElement('a');
  const query = new URLSearchParams({ topic: new URLSearchParams(location.search).get('topic'), by: 'place', value: message.place });
  place.href = `/message?${query}`;
  place.textContent = message.place;
  cell(row, '').replaceChildren(place);
  const verdict = cell(row, message.verdict.replaceAll('_', ' '), 'verdict');
  if (message.why) {
    const why = document.createElement('span');
    why.className = 'why';
    why.textContent = message.why;
    verdict.append(why);
  }
  const text = cell(row, message.json ?? message.body, 'text');
  if (message.json) text.classList.add('lines');
  cell(row, message.tag, 'short');
  cell(row, message.keys || '–', 'short');
  cell(row, message.properties || '–');
  return row;
}

function stages(counters) {
  const errors = counters.evaluationErrors + counters.predicateErrors + counters.predicateTimeouts;
  return {
    scanned: counters.scanned,
    code_hits: counters.scanned - counters.tagRejected,
    collisions: counters.collisions,
    sql_rejected: counters.sqlRejected,
    errors,
    delivered: counters.delivered,
  };
}

function tailPart(part) {
  const rows = document.getElementById('rows');
  const pause = document.getElementById('pause');
  const newer = document.getElementById('newer');
  const leftOut = document.getElementById('left-out');
  const unread = document.getElementById('unread');
  let isPaused = false;
  let held = [];
  let heldCount = 0;
  let shownInBrowser = 0;
  let before = null;
  let beforeTime = 0;
  let base = {};
  let sums = {};
  const number = (value) => value.toLocaleString();

  const show = (messages) => {
    for (const message of messages) {
      const row = rowOf(message);
      row.classList.toggle('new', messages.length <= 3);
      rows.prepend(row);
    }
    while (rows.rows.length > ROWS_MAX) rows.lastElementChild.remove();
    shownInBrowser += messages.length;
    if (shownInBrowser) newer.textContent = '';
  };
  const funnel = (counters) => {
    const now = stages(counters);
    const time = performance.now();
    const isDue = before === null || time - beforeTime >= 1000;
    for (const [name, total] of Object.entries(now)) {
      const stage = part.querySelector(`[data-stage=${name}]`);
      stage.querySelector('.total').textContent = number(total);
      stage.querySelector('rect').setAttribute('width', now.scanned ? (100 * total) / now.scanned : 0);
      if (isDue && before) {
        const rate = Math.round(((total - before[name]) * 1000) / (time - beforeTime));
        stage.querySelector('.rate').textContent = `${number(Math.max(rate, 0))}${part.dataset.perSecond}`;
      }
    }
    if (isDue) [before, beforeTime] = [now, time];
  };
  const losses = () => {
    const said = ['unshown', 'skipped', 'missed'].filter((name) => sums[name])
      .map((name) => `${number(sums[name])} ${part.dataset[name]}`).join('. ');
    if (leftOut.textContent !== said) leftOut.textContent = said;
  };
  const step = (value) => {
    const { counters, skipped, unshown } = value;
    for (const [name, count] of Object.entries({ ...counters, skipped, unshown })) {
      sums[name] = (base[name] ?? 0) + count;
    }
    funnel(sums);
    losses();
    const away = value.unread.map((each) => each.text).join('. ');
    if (unread.textContent !== away) unread.textContent = away;
    if (!isPaused) { show(value.rows); return; }
    held = held.concat(value.rows).slice(-HELD_MAX);
    heldCount += value.rows.length;
    if (heldCount) newer.textContent = part.dataset.newer.replace('{count}', number(heldCount));
  };
  pause.addEventListener('click', () => {
    isPaused = !isPaused;
    pause.setAttribute('aria-pressed', String(isPaused));
    pause.textContent = isPaused ? part.dataset.resume : part.dataset.pause;
    if (!isPaused) { show(held); held = []; heldCount = 0; newer.textContent = ''; }
  });
  follow(`/tail/stream${location.search}`, { step }, (continues) => {
    before = null;
    base = continues ? { ...sums } : {};
    if (!continues) rows.replaceChildren();
  });
}

function filterCheck(form) {
  const result = document.getElementById('check');
  let timer = 0;
  let asked = 0;
  const check = async () => {
    const number = ++asked;
    const fields = new FormData(form);
    const query = new URLSearchParams({ kind: fields.get('kind'), filter: fields.get('filter'), topic: fields.get('topic') });
    try {
      const answer = await fetch(`/filter/check.json?${query}`);
      const found = await answer.json();
      if (number !== asked) return;
      const doubts = (found.warnings || []).map((each) => `${each.code}: ${each.message}`);
      result.textContent = found.caret || found.error || doubts.join('\n');
      result.className = `check-result${found.valid ? (doubts.length ? ' doubt' : '') : ' wrong'}`;
      form.elements.filter.setAttribute('aria-invalid', String(!found.valid));
    } catch { /* the stream says that the console does not answer */ }
  };
  form.addEventListener('input', () => { clearTimeout(timer); timer = setTimeout(check, 250); });
  if (form.elements.filter.value) check();
}

function copies() {
  if (!navigator.clipboard) return; // beyond loopback, without TLS
  for (const button of document.querySelectorAll('[data-copy]')) {
    button.hidden = false;
    button.addEventListener('click', async () => {
      await navigator.clipboard.writeText(button.closest('.again').querySelector('pre').textContent);
      button.textContent = button.dataset.copy;
    });
  }
}

copies();
dress(document);
nav.querySelector('[aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'nearest' });
nav.addEventListener('scroll', fade);
window.addEventListener('resize', fade);
fade();
const live = document.querySelector('[data-live]');
if (live) livePart(live);
const tail = document.getElementById('tail');
if (tail) tailPart(tail);
for (const form of document.querySelectorAll('#tail-form, #filter-form')) filterCheck(form);
if (document.querySelector('[data-retry]')) {
  setInterval(async () => {
    try { if ((await fetch(location.href)).ok) location.reload(); } catch { /* asked again */ }
  }, 2000);
}
