// Updates the page with the parts that the agent sends, asks it for what is searched, shows local times, and copies.
// Without this script the page is complete but static.
"use strict";

const connection = document.getElementById("connection");
const news = document.getElementById("news");
const places = document.getElementById("parts");
const field = document.getElementById("search");
const found = document.getElementById("found");
const hits = document.getElementById("hits");
const RETRY_MS = 5000;
let lastSummary = null;
let asked = null; // the query under way
let said = ""; // the query whose result has been announced
let returnTo = null; // where the reader was before "/"

function say(state, words) {
  if (!connection) return;
  connection.className = state;
  connection.textContent = words;
}

function elapsed(seconds) {
  if (seconds < 120) return `${Math.max(0, Math.floor(seconds))} s ago`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 120) return `${minutes} min ago`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min ago`;
  return `${Math.floor(hours / 24)} days ago`;
}

function write(element, words) {
  if (element.textContent !== words) element.textContent = words;
}

function tick(root = document) {
  for (const element of root.querySelectorAll("[data-since]")) {
    const since = Date.parse(element.dataset.since);
    if (!Number.isNaN(since)) write(element, elapsed((Date.now() - since) / 1000));
  }
  for (const time of root.querySelectorAll("time:not([title])")) {
    const at = new Date(time.dateTime);
    time.title = Number.isNaN(at.getTime()) ? "" : at.toLocaleString(undefined, { dateStyle: "full", timeStyle: "long" });
  }
}

// The clipboard of the browser is there under https and on this machine only; elsewhere a selection is copied.
async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "unseen";
  document.body.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  if (!copied) throw new Error("the browser refuses to copy");
}

async function copyLinked(link) {
  const answer = await fetch(link.href);
  if (!answer.ok) throw new Error(answer.statusText);
  await copy(await answer.text());
  link.nextElementSibling.textContent = "Copied";
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-copy]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  copyLinked(link).catch(() => location.assign(link.href));
});

// Announce a changed verdict to screen readers once, and show its kind and job in the tab title.
function announce() {
  const summary = places.querySelector(".banner .summary");
  const kind = places.querySelector(".banner .kind strong");
  if (!summary || !kind) return;
  const job = places.querySelector("h1 bdi");
  document.title = `${kind.textContent}: ${job ? job.textContent : "hangwatch"}`;
  if (lastSummary !== null && lastSummary !== summary.textContent) news.textContent = `${kind.textContent}: ${summary.textContent}`;
  lastSummary = summary.textContent;
}

function layOut(ids) {
  for (const place of [...places.children]) if (!ids.includes(place.id)) place.remove();
  for (const id of ids) {
    let place = document.getElementById(id);
    if (!place) {
      place = document.createElement("div");
      place.className = "part";
      place.id = id;
    }
    if (places.children[ids.indexOf(id)] !== place) places.insertBefore(place, places.children[ids.indexOf(id)] || null);
  }
}

// Change only what differs: what is focused, selected, unfolded or under the pointer stays.
function change(shown, next) {
  const before = [...shown.childNodes];
  const after = [...next.childNodes];
  after.forEach((node, index) => {
    const old = before[index];
    if (!old) shown.append(node);
    else if (old.nodeName !== node.nodeName || old.id !== node.id) old.replaceWith(node);
    else if (node.nodeType === Node.ELEMENT_NODE) {
      changeAttributes(old, node);
      change(old, node);
    } else if (old.data !== node.data) old.data = node.data;
  });
  for (const old of before.slice(after.length)) old.remove();
}

function changeAttributes(shown, next) {
  for (const { name } of [...shown.attributes]) if (name !== "open" && !next.hasAttribute(name)) shown.removeAttribute(name);
  for (const { name, value } of next.attributes) if (name !== "open" && shown.getAttribute(name) !== value) shown.setAttribute(name, value);
}

function put(place, html) {
  const next = document.createElement("template");
  next.innerHTML = html; // rendered and escaped by the agent, same origin
  tick(next.content);
  change(place, next.content);
}

// Ask the agent for what the field says; what has been typed meanwhile is asked next.
async function search() {
  const query = field.value.trim();
  if (!query) return show(false);
  if (asked !== null) return;
  asked = query;
  try {
    const answer = await fetch(`search?q=${encodeURIComponent(query)}`);
    if (!answer.ok) throw new Error(answer.statusText);
    put(found, await answer.text());
  } catch {
    put(found, "<section><p>The agent does not answer, so nothing can be searched.</p></section>");
  }
  asked = null;
  if (field.value.trim() !== query) return search();
  show(true);
  if (said !== query) hits.textContent = [...found.querySelectorAll("h2, p:only-child")].map((one) => one.textContent).join(", ");
  said = query;
}

// What is found takes the place of the page until the field is empty.
function show(searching) {
  found.hidden = !searching;
  places.hidden = searching;
  if (!searching) hits.textContent = said = "";
}

function watchKeys(event) {
  if (event.key === "Escape" && (field.value || document.activeElement === field)) {
    field.value = "";
    field.blur();
    show(false);
    if (returnTo !== null) window.scrollTo(0, returnTo);
    returnTo = null;
  }
  const types = event.target.closest?.("input, textarea, [contenteditable]");
  if (event.key !== "/" || types || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  if (found.hidden) returnTo = window.scrollY;
  field.focus();
  field.select();
}

function listen() {
  const events = new EventSource(document.body.dataset.events);
  events.addEventListener("open", () => say("live", "live"));
  events.addEventListener("layout", (event) => layOut(JSON.parse(event.data)));
  events.addEventListener("part", (event) => {
    const { id, html } = JSON.parse(event.data);
    const place = document.getElementById(id);
    if (place) put(place, html);
    announce();
    if (field.value.trim()) search();
  });
  events.addEventListener("error", () => {
    if (!connection.classList.contains("lost")) say("lost", `disconnected; last update ${new Date().toLocaleTimeString()}`);
    if (events.readyState === EventSource.CLOSED) setTimeout(listen, RETRY_MS);
  });
}

tick();
setInterval(tick, 1000);
if (document.body.dataset.events) {
  announce();
  listen();
  field.addEventListener("input", search);
  document.addEventListener("keydown", watchKeys);
}
