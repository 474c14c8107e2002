// What the pages do beyond HTML: live parts, relative times, keys. Every page works without it.

const root = document.documentElement;
const all = (selector, within = document) => [...within.querySelectorAll(selector)];

// Merging: new HTML replaces only what has changed, so focus, selection and animations stay.

const keyOf = (node) => node.id || node.dataset?.key || "";

function syncAttributes(from, to) {
  for (const { name, value } of to.attributes) {
    if (from.getAttribute(name) !== value) from.setAttribute(name, value);
  }
  for (const { name } of [...from.attributes]) {
    // The user has opened it, or checked it.
    if (!to.hasAttribute(name) && !["open", "checked"].includes(name)) from.removeAttribute(name);
  }
}

export function merge(from, to) {
  if (from.nodeType !== to.nodeType || from.nodeName !== to.nodeName || keyOf(from) !== keyOf(to)) {
    from.replaceWith(to);
    return;
  }
  if (from.nodeType !== Node.ELEMENT_NODE) {
    if (from.nodeValue !== to.nodeValue) from.nodeValue = to.nodeValue;
    return;
  }
  if (from.isEqualNode(to)) return;
  syncAttributes(from, to);
  const known = new Map([...from.children].filter(keyOf).map((child) => [keyOf(child), child]));
  let at = from.firstChild;
  for (const child of [...to.childNodes]) {
    const key = child.nodeType === Node.ELEMENT_NODE ? keyOf(child) : "";
    const same = key ? known.get(key) : at;
    if (!same || same.nodeName !== child.nodeName || (!key && keyOf(same))) {
      from.insertBefore(child, at);
      continue;
    }
    if (same !== at) from.insertBefore(same, at);
    at = same.nextSibling;
    merge(same, child);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function isBusy(part) {
  // What the user is working on is left alone until it is sent or given up.
  return part.querySelector("tbody input:checked, :popover-open, textarea:focus, input:focus, select:focus");
}

function mergeParts(text) {
  const fresh = new DOMParser().parseFromString(text, "text/html");
  for (const part of all("[data-live]", fresh)) {
    const present = document.getElementById(part.id);
    if (present && !isBusy(present)) merge(present, document.adoptNode(part));
  }
  if (fresh.documentElement.dataset.now) root.dataset.now = fresh.documentElement.dataset.now;
  noteClock();
  showTimes();
}

// The stream: one for the tab. It is closed while nobody sees the tab.

const pill = document.getElementById("live");
let stream = null;
let refused = false;
let fetching = false;
let again = false;

function say(kind, words) {
  if (!pill) return;
  pill.className = `pill ${kind}`;
  pill.textContent = words;
}

async function fetchParts() {
  if (fetching) {
    again = true;
    return;
  }
  fetching = true;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    // The session is over, or the guard now sends the visitor to a page to sign in.
    if (answer.redirected || [401, 403].includes(answer.status)) say("off", "no longer allowed");
    else if (answer.ok) mergeParts(await answer.text());
  } catch {
    say("off", "no answer");
  } finally {
    fetching = false;
    if (again) {
      again = false;
      fetchParts();
    }
  }
}

function showCounts(counts) {
  for (const output of all("[data-count]")) {
    const count = counts[output.dataset.count];
    if (count === undefined) continue;
    output.textContent = count ? count.toLocaleString("en") : output.dataset.zero || "";
  }
  const trouble = document.getElementById("trouble");
  if (trouble) {
    trouble.hidden = !counts.trouble;
    trouble.querySelector("span").textContent = counts.trouble || "";
  }
  if (counts.trouble) say("off", "server away");
  else say("on", "live");
}

function showJobs(jobs) {
  const place = document.getElementById("jobs");
  if (!place) return;
  place.hidden = !jobs.length;
  place.replaceChildren(
    ...jobs.map(({ title, who, done, total }) => {
      const line = document.createElement("p");
      const bar = document.createElement("progress");
      const words = `${title}${who === "anonymous" ? "" : `, by ${who}`}`;
      const numbers = total ? `: ${done.toLocaleString("en")} of ${total.toLocaleString("en")}` : " …";
      if (total) Object.assign(bar, { max: total, value: done });
      bar.setAttribute("aria-label", words);
      line.append(`${words}${numbers}`, bar);
      return line;
    }),
  );
  if (showJobs.count > jobs.length) fetchParts();
  showJobs.count = jobs.length;
}

function listen() {
  const url = document.body.dataset.stream;
  if (!url || stream || document.hidden) return;
  stream = new EventSource(url);
  let lost = 0;
  stream.addEventListener("open", () => {
    clearTimeout(lost);
    say("on", "live");
    if (lost || refused) fetchParts();
    lost = 0;
    refused = false;
  });
  stream.addEventListener("error", () => {
    // A stream that the server has refused does not try again by itself. The page knows why.
    if (stream?.readyState === EventSource.CLOSED) {
      stream = null;
      refused = true;
      clearTimeout(lost);
      say("off", "reconnecting");
      fetchParts();
      setTimeout(listen, 3000);
      return;
    }
    // The server ends a stream now and then, so that the guard is asked again: that is no trouble.
    lost ||= setTimeout(() => say("off", "reconnecting"), 4000);
  });
  stream.addEventListener("counts", (event) => showCounts(JSON.parse(event.data)));
  stream.addEventListener("jobs", (event) => showJobs(JSON.parse(event.data)));
  stream.addEventListener("state", (event) => mergeParts(event.data));
  stream.addEventListener("changed", fetchParts);
}

// A page about a server that is away asks until there is a better answer.
function heal(seconds) {
  setInterval(async () => {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } }).catch(() => null);
    if (answer && answer.status < 500) location.reload();
  }, seconds * 1000);
}

function stopListening() {
  stream?.close();
  stream = null;
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) stopListening();
  else if (!stream && document.body.dataset.stream) {
    listen();
    fetchParts();
  }
});
addEventListener("pagehide", stopListening);

// Times: relative to the server's clock.

let skew = 0;

function noteClock() {
  const now = Number(root.dataset.now);
  if (now && now !== noteClock.last) {
    skew = now - Date.now();
    noteClock.last = now;
  }
}

export function duration(seconds) {
  if (seconds < 0.1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 100) return `${Math.round(seconds)} s`;
  if (seconds < 6000) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

function relative(seconds) {
  if (Math.abs(seconds) < 1) return "now";
  // Whole seconds: tenths would only flicker.
  const words = duration(Math.abs(seconds) < 10 ? Math.round(Math.abs(seconds)) + 1e-9 : Math.abs(seconds)).replace(".0 ", " ");
  return seconds > 0 ? `${words} ago` : `in ${words}`;
}

function showTimes() {
  const now = Date.now() + skew;
  for (const time of all("time[datetime]")) {
    const words = time.querySelector(".rel");
    if (!words) continue;
    const seconds = (now - Date.parse(time.dateTime)) / 1000;
    const text = time.dataset.plain === undefined ? relative(seconds) : duration(Math.max(seconds, 0));
    if (words.textContent !== text) words.textContent = text;
  }
}

// The theme and the form of the times: the server reads the cookie, so that no page blinks.

function remember(name, value) {
  const path = document.body.dataset.home || "/";
  document.cookie = `docket-${name}=${value}; path=${path}; max-age=31536000; samesite=lax`;
  if (value === "system" || value === "relative") delete root.dataset[name];
  else root.dataset[name] = value;
}

document.addEventListener("submit", (event) => {
  const name = event.target.dataset.remember;
  if (!name) return;
  event.preventDefault();
  remember(name, event.submitter.value);
  // The button leads to the other form of the times.
  if (name === "times") event.submitter.value = event.submitter.value === "absolute" ? "relative" : "absolute";
});

document.addEventListener("change", (event) => {
  const box = event.target;
  if (box.matches("[data-all]")) {
    for (const other of all("tbody input[type=checkbox]", box.form)) other.checked = box.checked;
  }
  const form = box.form;
  const count = form?.querySelector("[data-checked]");
  if (count) count.textContent = all("tbody input:checked", form).length.toLocaleString("en");
  if (box.matches("[data-submit]")) form.requestSubmit();
});

document.addEventListener("click", (event) => {
  const copier = event.target.closest("[data-copy]");
  if (copier) {
    navigator.clipboard?.writeText(copier.dataset.copy);
    copier.textContent = "copied";
  }
});

// Keys

const help = document.getElementById("keys");
let going = 0;

function step(by) {
  const links = all("main tbody tr a, main .fleet a.slot").filter((link) => link.offsetParent);
  const rows = [...new Set(links.map((link) => link.closest("tr") || link))];
  const here = rows.indexOf(document.activeElement?.closest("tr") || document.activeElement);
  const row = rows[Math.min(Math.max(here + by, 0), rows.length - 1)];
  const link = row?.matches("a") ? row : row?.querySelector("a");
  link?.focus();
}

const keys = {
  "/": () => document.querySelector(".filter input")?.focus(),
  "?": () => help?.showModal(),
  j: () => step(1),
  k: () => step(-1),
  x: () => document.activeElement?.closest("tr")?.querySelector("input[type=checkbox]")?.click(),
  g: () => (going = Date.now()),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.target.matches("input, textarea, select")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (going && Date.now() - going < 2000) {
    going = 0;
    const link = document.querySelector(`.nav a[data-go="${CSS.escape(event.key)}"]`);
    if (link) {
      event.preventDefault();
      link.click();
      return;
    }
  }
  const act = keys[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});

// A chart says its values in words where the pointer is.

document.addEventListener("pointerover", (event) => {
  const hit = event.target.closest?.("[data-words]");
  const place = event.target.closest?.(".card")?.querySelector(".readout");
  if (place) place.textContent = hit ? hit.dataset.words : place.dataset.rest || "";
});

// On a narrow screen the navigation is a strip that scrolls.
document.querySelector(".nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

root.classList.add("js");
noteClock();
showTimes();
setInterval(() => document.hidden || showTimes(), 1000);
if (document.body.dataset.heal) heal(Number(document.body.dataset.heal));
else listen();
