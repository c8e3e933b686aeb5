// Streams answers into the page. Without this script, the form waits for the answer and shows the thread.
"use strict";

const composer = document.getElementById("composer");
if (composer) chat(composer);

function chat(composer) {
  const field = document.getElementById("message");
  const send = document.getElementById("send");
  const stop = document.getElementById("stop");
  const said = document.getElementById("chat-said");
  const turns = document.getElementById("turns");
  let sending = false, source = null;

  const say = (text) => { said.textContent = text; };
  const isWorking = () => !stop.hidden;

  // The typed text survives a reload, and a sign-in that is needed meanwhile.
  const draftKey = () => `chat-draft:${composer.elements.thread.value}`;
  if (!field.value) field.value = sessionStorage.getItem(draftKey()) ?? "";
  function keepDraft() {
    if (field.value) sessionStorage.setItem(draftKey(), field.value);
    else sessionStorage.removeItem(draftKey());
  }

  function fit() {
    field.style.height = "auto";
    field.style.height = `${Math.min(field.scrollHeight + 2, innerHeight * 0.4)}px`;
  }

  // Follows the end of the conversation, unless the reader has scrolled up.
  function atEnd() {
    const page = document.documentElement;
    return page.scrollHeight - page.scrollTop - page.clientHeight < 120;
  }
  const toEnd = () => scrollTo({ top: document.documentElement.scrollHeight });

  function show(html) {
    const follow = atEnd();
    put(html);
    if (follow) toEnd();
  }

  function notice(html) {
    document.getElementById("chat-notice").outerHTML = html || '<div id="chat-notice" hidden></div>';
    if (html) toEnd();
  }

  function tell(title, text) {
    notice('<div id="chat-notice" class="flash bad" role="alert"><p><strong></strong></p><p></p></div>');
    const place = document.getElementById("chat-notice");
    place.querySelector("strong").textContent = title;
    place.querySelector("p + p").textContent = text;
  }

  // A button that is hidden or disabled loses the focus, and the keyboard its place.
  function leave(button) {
    if (document.activeElement === button) field.focus({ preventScroll: true });
  }

  function hide(button) {
    leave(button);
    button.hidden = true;
  }

  function working(turn) {
    stop.value = turn;
    stop.hidden = false;
    hide(send);
    say("The project manager is working.");
  }

  function idle(text) {
    send.hidden = false;
    hide(stop);
    stop.disabled = send.disabled = false;
    say(text);
  }

  // A turn was stored: the page makes a place for it and belongs to its thread from now on.
  function begun({ thread, turn, id, title }) {
    const place = document.createElement("article");
    place.id = id;
    if (!document.getElementById(id)) turns.append(place);
    document.getElementById("welcome")?.remove();
    sessionStorage.removeItem(draftKey());
    field.value = "";
    fit();
    composer.elements.thread.value = thread;
    composer.elements.request.value = crypto.randomUUID?.() ?? "";
    const address = new URL(location.pathname, location);
    address.searchParams.set("thread", thread);
    history.replaceState(null, "", address);
    const manage = document.getElementById("manage");
    manage.href = `/console/threads/thread?id=${encodeURIComponent(thread)}`;
    manage.hidden = false;
    if (title) {
      document.querySelector("h1").textContent = title;
      document.title = `${title} · Cynode gateway`;
    }
    working(turn);
    toEnd();
  }

  // Waits for the answer of a turn whose stream this page does not have.
  function follow() {
    const query = new URLSearchParams({ thread: composer.elements.thread.value, turn: stop.value });
    source?.close();
    source = new EventSource(`/console/chat/live?${query}`);
    source.addEventListener("last", (event) => {
      source.close();
      show(event.data);
      idle("Answered.");
    });
    source.addEventListener("error", () => {
      if (source.readyState !== EventSource.CLOSED) return;
      say("");
      tell("The answer cannot be followed any more.", "Reload the page. Your text is kept.");
    });
  }

  // Names the message anew if another text was sent under its name.
  function rename() {
    const fresh = document.querySelector("#chat-notice [data-request]")?.dataset.request;
    if (fresh) composer.elements.request.value = fresh;
  }

  const handlers = {
    turn: (data) => begun(JSON.parse(data)),
    message: show,
    done: (data) => { show(data); idle("Answered."); },
    refused: (data) => { notice(data); rename(); idle(""); field.focus(); },
    lost: follow,
  };

  // Reads server-sent events from the answer to a POST, which EventSource cannot make.
  async function read(body) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "", last = null;
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return last;
      const events = (rest + value).split("\n\n");
      rest = events.pop();
      for (const event of events) {
        let name = "message", data = [];
        for (const line of event.split("\n")) {
          if (line.startsWith("event: ")) name = line.slice(7);
          else if (line.startsWith("data: ")) data.push(line.slice(6));
          else if (line === "data:") data.push("");
        }
        if (!data.length && name === "message") continue;
        last = name;
        handlers[name]?.(data.join("\n"));
      }
    }
  }

  async function submit() {
    if (sending || isWorking() || !field.value.trim()) return;
    sending = true;
    leave(send);
    send.disabled = true;
    notice("");
    say("Sending…");
    const form = new URLSearchParams(new FormData(composer));
    let last = null;
    try {
      const answer = await fetch("/console/chat/stream", { method: "POST", body: form });
      const kind = answer.headers.get("content-type") ?? "";
      if (!kind.startsWith("text/event-stream")) {
        const isSignedOut = new URL(answer.url).pathname === "/console/login";
        idle("");
        tell("Your message was not sent.", isSignedOut
          ? "Your session has ended. Reload the page and sign in again: your text is kept."
          : `The gateway refused it (${answer.status}). Reload the page and try again: your text is kept.`);
        return;
      }
      last = await read(answer.body);
    } catch {
      // The connection broke. Below it is decided what follows.
    } finally {
      sending = false;
      send.disabled = false;
    }
    if (last === "done" || last === "refused" || last === "lost") return;
    if (isWorking()) {
      follow();
    } else {
      idle("");
      tell("The gateway does not answer.", "Send the message again: it is not sent twice.");
    }
  }

  async function stopWork() {
    leave(stop);
    stop.disabled = true;
    say("Stopping…");
    const form = new URLSearchParams(new FormData(composer));
    form.set("turn", stop.value);
    form.delete("message");
    try {
      const answer = await fetch("/console/chat/stop", { method: "POST", body: form });
      if (!answer.ok) throw new Error(answer.status);
    } catch {
      stop.disabled = false;
      say("");
      tell("The work was not stopped.", "The orchestrator does not answer. Try again in a moment.");
    }
  }

  composer.addEventListener("submit", (event) => {
    event.preventDefault();
    if (event.submitter === stop) stopWork();
    else submit();
  });
  field.addEventListener("input", () => { fit(); keepDraft(); });
  field.addEventListener("keydown", (event) => {
    // On a touch screen, Enter begins a new line.
    const isTouch = matchMedia("(pointer: coarse)").matches;
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing && !isTouch) {
      event.preventDefault();
      submit();
    }
  });
  composer.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && isWorking()) stopWork();
  });

  fit();
  if (isWorking()) follow();
  if (turns.children.length && !location.hash) toEnd();
}
