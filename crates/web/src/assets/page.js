// Shows the changes of the page. Everything works without scripts too; the page then has to be loaded
// again.
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
// replaced would be lost, and a list of options that is open would close.
const waiting = [];
let isPressed = false;

// Selects a field whose list of options is open; empty if the browser cannot tell.
const OPEN = CSS.supports("selector(select:open)") ? "select:open" : "";

function isChoosing() {
  return OPEN !== "" && document.querySelector(OPEN) !== null;
}

function take(message) {
  waiting.push(message);
  showWaiting();
}

function showWaiting() {
  while (!isPressed && !isChoosing() && waiting.length) show(waiting.shift());
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

count();
setInterval(() => {
  tick();
  // A list of options may close without an event.
  showWaiting();
}, 1000);
