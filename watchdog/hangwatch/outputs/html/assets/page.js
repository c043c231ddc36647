// Updates the page with the parts that the agent sends, shows local times, and copies. Without this script the page is
// complete but static.
"use strict";

const connection = document.getElementById("connection");
const news = document.getElementById("news");
const places = document.getElementById("parts");
const RETRY_MS = 5000;
let lastSummary = null;

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

function tick() {
  for (const element of document.querySelectorAll("[data-since]")) {
    const since = Date.parse(element.dataset.since);
    if (!Number.isNaN(since)) element.textContent = elapsed((Date.now() - since) / 1000);
  }
  for (const time of document.querySelectorAll("time:not([title])")) {
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
  // An event may have replaced the link meanwhile.
  const shown = document.querySelector(`a[data-copy][href="${CSS.escape(link.getAttribute("href"))}"]`) || link;
  shown.nextElementSibling.textContent = "Copied";
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-copy]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  copyLinked(link).catch(() => location.assign(link.href));
});

// Announce a changed verdict to screen readers once, and show its kind and job in the tab title.
function announce() {
  const summary = document.querySelector(".banner .summary");
  const kind = document.querySelector(".banner .kind strong");
  if (!summary || !kind) return;
  const job = document.querySelector("h1 bdi");
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

// Replace a part; keep what the reader has unfolded, and the focus.
function put(id, html) {
  const place = document.getElementById(id);
  if (!place) return;
  const opened = new Map([...place.querySelectorAll("details[id]")].map((part) => [part.id, part.open]));
  const focused = place.contains(document.activeElement) ? document.activeElement.closest("[id]") : null;
  place.innerHTML = html; // rendered and escaped by the agent, same origin
  for (const [part, open] of opened) {
    const found = document.getElementById(part);
    if (found) found.open = open;
  }
  if (focused && focused.id) document.getElementById(focused.id)?.querySelector("summary, a, [tabindex]")?.focus();
}

function listen() {
  const events = new EventSource(document.body.dataset.events);
  events.addEventListener("open", () => say("live", "live"));
  events.addEventListener("layout", (event) => layOut(JSON.parse(event.data)));
  events.addEventListener("part", (event) => {
    const { id, html } = JSON.parse(event.data);
    put(id, html);
    tick();
    announce();
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
}
