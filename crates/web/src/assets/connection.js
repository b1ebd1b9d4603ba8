// Talks to the server: receives the changes of the page, which `page.js` shows, and sends its forms
// without leaving it.
"use strict";

// Without it, the forms must work as without scripts.
if (typeof take !== "function") throw new Error("page.js was not loaded");

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

listen();
