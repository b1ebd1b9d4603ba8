// Keeps the page up to date, and sends its forms without leaving it. Everything works without this
// script too; the page then has to be loaded again.
"use strict";

const status = document.getElementById("status");

function say(text, isError) {
  status.textContent = text;
  status.classList.toggle("error", Boolean(isError));
}

// After a question has come or gone, for how long the buttons of questions are not to be pressed, in
// milliseconds: they may have moved under the pointer. The page has the class `moved` meanwhile.
const UNSURE = 500;
let settling;

function unsettle() {
  document.body.classList.add("moved");
  clearTimeout(settling);
  settling = setTimeout(() => document.body.classList.remove("moved"), UNSURE);
}

function questions(element) {
  return [...element.querySelectorAll("input[name=question]")].map((one) => one.value).join(" ");
}

// Whether a box with its own scroll bar is shown to its end, where new output or a new event appears.
// Diffs do not grow there.
function isFollowed(box) {
  return !box.matches(".diff") && box.scrollTop + box.clientHeight >= box.scrollHeight - 2;
}

// Replaces an element by HTML of the server, and keeps what the user is at: the focus with the caret,
// texts that are being written, what is unfolded, and where boxes are scrolled to. What can have the focus
// or be scrolled has an ID that stays the same.
function replace(element, html) {
  const before = questions(element);
  const template = document.createElement("template");
  template.innerHTML = html;
  const next = template.content.firstElementChild;
  if (!next || next.outerHTML === element.outerHTML) return;
  for (const field of element.querySelectorAll("input[id], textarea[id], select[id]")) {
    const same = next.querySelector(`#${CSS.escape(field.id)}`);
    if (!same) continue;
    if (field.type === "checkbox") same.checked = field.checked;
    else same.value = field.value;
  }
  const active = element.contains(document.activeElement) ? document.activeElement : {};
  const { selectionStart, selectionEnd } = active;
  const unfolded = [...element.querySelectorAll("details")].map((one) => one.open);
  [...next.querySelectorAll("details")].forEach((one, at) => { one.open = Boolean(unfolded[at]); });
  const boxes = [...element.querySelectorAll("pre[id], ol[id]")]
    .map((box) => ({ id: box.id, top: box.scrollTop, follows: isFollowed(box) }));
  element.replaceWith(next);
  for (const { id, top, follows } of boxes) {
    const box = document.getElementById(id);
    if (box) box.scrollTop = follows ? box.scrollHeight : top;
  }
  if (questions(next) !== before) unsettle();
  const focus = active.id && document.getElementById(active.id);
  if (focus) focus.focus({ preventScroll: true });
  if (focus && Number.isInteger(selectionStart)) focus.setSelectionRange(selectionStart, selectionEnd);
  tick();
}

// Says how many questions are open, in the title and to those who do not see the page.
let asked = 0;
const title = document.title;

function count() {
  const now = document.querySelectorAll(".question").length;
  if (now === asked) return;
  document.title = now ? `(${now}) ${title}` : title;
  if (now > asked) say(now === 1 ? "Codex asks a question." : `Codex asks ${now} questions.`);
  asked = now;
}

function isAtEnd() {
  return window.innerHeight + window.scrollY >= document.documentElement.scrollHeight - 80;
}

// Messages that are not shown yet: while a button of the mouse is down, or a finger, a click on what is
// replaced would be lost.
const waiting = [];
let isPressed = false;

function take(message) {
  waiting.push(message);
  showWaiting();
}

function showWaiting() {
  while (!isPressed && waiting.length) show(waiting.shift());
  count();
}

// A click does not end in a window that has lost the focus to a menu or another window.
window.addEventListener("blur", () => {
  isPressed = false;
  showWaiting();
});

for (const kind of ["pointerdown", "pointermove", "pointerup", "pointercancel", "keydown"]) {
  document.addEventListener(kind, (event) => {
    // A button that is let go of elsewhere, as in a menu, is noticed when the pointer moves, or a key is
    // used.
    isPressed = kind === "pointerdown" || (kind === "pointermove" && event.buttons !== 0);
    // The click comes after its `pointerup`.
    if (waiting.length) setTimeout(showWaiting);
  });
}

function show(message) {
  const follows = isAtEnd();
  if (message.part) {
    const part = document.getElementById(message.part);
    if (part) replace(part, message.html);
  } else if (message.put) {
    const step = document.getElementById(message.put);
    if (step) {
      replace(step, message.html);
    } else {
      document.getElementById("steps").insertAdjacentHTML("beforeend", message.html);
    }
  } else if (message.append) {
    const text = document.getElementById(message.append);
    if (!text) return;
    const isAtItsEnd = isFollowed(text);
    text.append(message.text);
    if (isAtItsEnd) text.scrollTop = text.scrollHeight;
  }
  if (follows && document.getElementById("steps")) {
    window.scrollTo(0, document.documentElement.scrollHeight);
  }
}

// How long to wait before the server is tried again, in milliseconds.
const PAUSE = 3000;

// After how long in the background a page gives its connection back, in milliseconds.
const BACKGROUND = 10000;

// Whether the server that answers is the one that has sent this page; undefined if none answers. When
// a server has ended, another user of the machine can take its port: what that user sends must neither
// be shown nor loaded here.
async function isSameServer() {
  try {
    const answer = await fetch("/endpoint", { cache: "no-store" });
    // A proxy answers so while no server runs.
    if (answer.status >= 500) return undefined;
    return answer.ok && (await answer.text()) === document.body.dataset.endpoint;
  } catch (error) {
    return undefined;
  }
}

function sayEnded() {
  offerToLoad("The server of this page has ended, or this browser is signed out. Close this page, and open "
    + "the link that `codex-mcp web link` prints. If nobody else uses the machine, you can also ");
}

function isChanged(field) {
  if (field.type === "checkbox") return field.checked !== field.defaultChecked;
  if (!field.options) {
    // Browsers remove from a default what a field cannot have, such as a line break.
    const unchanged = field.cloneNode();
    unchanged.value = field.defaultValue;
    return field.value !== unchanged.value;
  }
  // Without a preset, the first option is chosen.
  const preset = [...field.options].findIndex((option) => option.defaultSelected);
  return field.selectedIndex !== Math.max(0, preset);
}

// Whether somebody has begun to fill in a form.
function isWritten() {
  return [...document.querySelectorAll("input, textarea, select")].some(isChanged);
}

// Set when the page no longer changes, and was not loaded again because of a form.
let isOutdated = false;

// Loads the page again, unless a form would be lost.
function reload() {
  isOutdated = isWritten();
  if (isOutdated) offerToLoad("This page is out of date. Copy what you have written, and ");
  else location.reload();
}

function offerToLoad(text) {
  say(text, true);
  const link = document.createElement("a");
  link.href = location.pathname;
  link.textContent = "load the page again";
  status.append(link, ".");
}

const LOST = "The connection is lost. Trying again …";

// How the server refuses this page its changes, which an event source does not tell; empty if it does
// not refuse them.
async function refusal(address) {
  try {
    const answer = await fetch(address, { headers: { Accept: "application/json" }, cache: "no-store" });
    if (!answer.ok) return { status: answer.status, error: (await answer.json()).error };
    await answer.body.cancel();
    return {};
  } catch (error) {
    return { error: LOST };
  }
}

// A connection that is lost is made again, and after a refusal, as there is one while a host is
// replaced, the page is loaded again, unless a form would be lost. Both need the server that has sent
// the page.
function listen() {
  const address = document.body.dataset.events;
  if (!address) return;
  let events;
  let last = "";
  let isLost = false;
  let retry;

  function connect() {
    const url = new URL(address, location.href);
    if (last) url.searchParams.set("after", last);
    events = new EventSource(url);
    events.onmessage = (event) => {
      last = event.lastEventId || last;
      take(JSON.parse(event.data));
    };
    events.addEventListener("reload", () => { events.close(); reload(); });
    events.addEventListener("end", () => events.close());
    events.addEventListener("gone", () => {
      events.close();
      say("The session has ended with its host process.", true);
    });
    events.onopen = () => {
      if (isLost) say("");
      isLost = false;
    };
    events.onerror = () => {
      const isRefused = events.readyState === EventSource.CLOSED;
      // The browser would try again without asking which server it is.
      events.close();
      isLost = true;
      say(LOST, true);
      retry = setTimeout(() => recover(isRefused), PAUSE);
    };
  }

  async function recover(reloads) {
    const isSame = await isSameServer();
    const { status: code, error } = isSame && reloads ? await refusal(address) : {};
    // With 409, too many pages are open.
    const waits = isSame === undefined || code === 409 || (error && !code);
    if (waits) {
      isLost = true;
      say(error || LOST, true);
      retry = setTimeout(() => recover(reloads), PAUSE);
    } else if (!isSame) {
      sayEnded();
    } else if (reloads && !isWritten()) {
      location.reload();
    } else if (code === 404) {
      offerToLoad(`${error}. Copy what you have written, and `);
    } else {
      connect();
    }
  }

  // A browser opens few connections to a server, and a page in the background needs none. One in which
  // somebody has begun to write is not loaded again.
  let givesUp;
  let hasGivenUp = false;
  function look() {
    clearTimeout(givesUp);
    if (document.hidden && !isWritten()) {
      givesUp = setTimeout(() => {
        clearTimeout(retry);
        events.close();
        hasGivenUp = true;
      }, BACKGROUND);
    } else if (!document.hidden && hasGivenUp) {
      hasGivenUp = false;
      recover(true);
    }
  }

  document.addEventListener("visibilitychange", look);
  connect();
  // A page that is opened in a background tab has no such event.
  look();
}

async function send(form, submitter) {
  const data = new URLSearchParams(new FormData(form, submitter));
  const written = () => String(new URLSearchParams(new FormData(form)));
  const sent = written();
  const buttons = [...form.querySelectorAll("button")];
  buttons.forEach((button) => { button.disabled = true; });
  try {
    const response = await fetch(form.getAttribute("action"), {
      method: "POST",
      body: data,
      headers: { Accept: "application/json" },
    });
    const answer = await response.json().catch(() => ({}));
    if (!response.ok) {
      say(answer.error || `The server answers with ${response.status}.`, true);
      return;
    }
    say(answer.done || "");
    if (answer.address) location.assign(answer.address);
    else if (written() === sent) form.reset();
    if (isOutdated) reload();
  } catch (error) {
    say("No answer from the server. Look whether it was done before you send it again.", true);
  } finally {
    buttons.forEach((button) => { button.disabled = false; });
  }
}

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (!form.hasAttribute("data-live")) return;
  event.preventDefault();
  if (form.elements.namedItem("question") && document.body.classList.contains("moved")) {
    say("The questions have just changed. Look again, and press once more.", true);
    return;
  }
  send(form, event.submitter);
});

function short(seconds) {
  const two = (number) => String(number).padStart(2, "0");
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${two(seconds % 60)} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${two(Math.floor((seconds % 3600) / 60))} min`;
  return `${Math.floor(seconds / 86400)} d`;
}

function tick() {
  for (const clock of document.querySelectorAll("time[data-since]")) {
    const seconds = Math.max(0, Math.floor((Date.now() - Number(clock.dataset.since)) / 1000));
    const text = short(seconds);
    if (clock.textContent !== text) clock.textContent = text;
  }
}

listen();
count();
setInterval(tick, 1000);
