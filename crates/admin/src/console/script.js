// Conveniences. Every page works without this script.
"use strict";

// Relative times are updated.
const MINUTE = 60, HOUR = 60 * MINUTE, DAY = 24 * HOUR;

function relative(seconds) {
  const size = Math.abs(Math.trunc(seconds));
  if (size < 5) return seconds >= 0 ? "just now" : "in a moment";
  let span;
  if (size < MINUTE) span = `${size} s`;
  else if (size < HOUR) span = `${Math.round(size / MINUTE)} min`;
  else if (size < DAY) span = `${Math.round(size / HOUR)} h`;
  else return null; // A page is not open for days.
  return seconds >= 0 ? `${span} ago` : `in ${span}`;
}

function tick() {
  for (const time of document.querySelectorAll("time[datetime]")) {
    const text = relative((Date.now() - Date.parse(time.dateTime)) / 1000);
    if (text && time.textContent !== text) time.textContent = text;
  }
}
setInterval(tick, 5000);

// Copy buttons of secrets.
for (const button of document.querySelectorAll("button[data-copy]")) {
  const secret = document.getElementById(button.dataset.copy);
  const said = document.getElementById("copied");
  button.hidden = false;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(secret.textContent);
      said.textContent = "Copied.";
    } catch {
      getSelection().selectAllChildren(secret);
      said.textContent = "Selected: copy it with the keyboard.";
    }
  });
}

// Confirmations close with Escape, and when another one opens.
const questions = document.querySelectorAll("details.confirm");
for (const question of questions) {
  question.addEventListener("toggle", () => {
    if (question.open) for (const other of questions) if (other !== question) other.open = false;
  });
  question.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && question.open) {
      question.open = false;
      question.querySelector("summary").focus();
    }
  });
}

// New audit rows.
const MAX_ROWS = 500;
const panel = document.querySelector("[data-live]");
if (panel && window.EventSource) watch(panel);

function watch(panel) {
  const rows = document.getElementById("rows");
  const said = document.getElementById("live-said");
  let after = panel.dataset.after, source = null, fresh = 0, saying = null;

  function say(text) {
    // Delayed, so that a screen reader does not read every single row.
    clearTimeout(saying);
    saying = setTimeout(() => { said.textContent = text; }, 300);
  }

  function add(event) {
    after = event.lastEventId;
    if (document.getElementById(`row-${after}`)) return;
    const holder = document.createElement("template");
    holder.innerHTML = event.data;
    holder.content.firstElementChild.classList.add("fresh");
    rows.prepend(holder.content);
    while (rows.children.length > MAX_ROWS) rows.lastElementChild.remove();
    document.getElementById("none")?.remove();
    fresh += 1;
    say(fresh === 1 ? "Live: 1 new row" : `Live: ${fresh} new rows`);
  }

  function open() {
    const address = new URL(panel.dataset.live, location);
    address.searchParams.set("after", after);
    source = new EventSource(address);
    source.addEventListener("message", add);
    onStreamEnd(source, panel, say);
    say(fresh ? `Live: ${fresh} new rows` : "Live: waiting for new rows");
  }

  pausable(panel, () => source, open, say);
}

// Shows a panel whose button stops and resumes a stream of events. It does not say “Pause”: on the page of a
// workflow that is what pauses the workflow.
function pausable(panel, source, open, say) {
  const button = panel.querySelector("button");
  button.addEventListener("click", () => {
    const isOn = button.getAttribute("aria-pressed") === "true";
    button.setAttribute("aria-pressed", String(!isOn));
    button.textContent = isOn ? "Refresh again" : "Stop refreshing";
    if (isOn) {
      source().close();
      say("Not refreshing");
    } else {
      open();
    }
  });
  panel.hidden = false;
  open();
}

// A closed stream is not reopened: the session has ended and needs a new sign-in.
function onStreamEnd(source, panel, say) {
  source.addEventListener("error", () => {
    if (source.readyState === EventSource.CLOSED) {
      say("Live updates ended. Reload the page to continue.");
      panel.querySelector("button").hidden = true;
    }
  });
}

// Live parts of a page: each replaces the element with its id.
// What was put last: what people do with a part since then, such as opening its questions, is no change.
const shown = new Map();
const followed = document.querySelector("[data-follow]");
if (followed && window.EventSource) follow(followed);

function put(html) {
  const holder = document.createElement("template");
  holder.innerHTML = html;
  for (const part of [...holder.content.children]) {
    const old = document.getElementById(part.id);
    if (!old || (shown.get(part.id) ?? old.outerHTML) === part.outerHTML) continue;
    shown.set(part.id, part.outerHTML);
    // Keep the focus on the link that had it.
    const at = old.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    old.replaceWith(part);
    if (at) [...part.querySelectorAll("a")].find((link) => link.getAttribute("href") === at)?.focus();
  }
  tick();
}

function follow(panel) {
  const said = document.getElementById("live-said");
  const button = panel.querySelector("button");
  const say = (text) => { said.textContent = text; };
  let source = null;
  for (const part of document.querySelectorAll("main [id]")) shown.set(part.id, part.outerHTML);

  function open() {
    source = new EventSource(panel.dataset.follow);
    source.addEventListener("message", (event) => put(event.data));
    source.addEventListener("last", (event) => {
      source.close();
      put(event.data);
      say(panel.dataset.last || "Answered");
      button.hidden = true;
    });
    onStreamEnd(source, panel, say);
    say("Live");
  }

  pausable(panel, () => source, open, say);
}
