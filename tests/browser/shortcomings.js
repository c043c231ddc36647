// Texts whose contrast with what is behind them is below 4.5, or 3 where they are large (WCAG 2.2, level AA, 1.4.3); a page
// that scrolls sideways; a table that does.
(() => {
  const channel = (value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
  const light = (c) => 0.2126 * channel(c[0]) + 0.7152 * channel(c[1]) + 0.0722 * channel(c[2]);
  const over = (top, under) => [0, 1, 2].map((i) => top[i] * top[3] + under[i] * (1 - top[3])).concat(1);
  const parse = (colour) => {
    const numbers = (colour.match(/[\d.]+/g) || [0, 0, 0, 0]).map(Number); // "none" is no colour at all
    return [numbers[0], numbers[1], numbers[2], numbers.length > 3 ? numbers[3] : 1];
  };
  const grounds = new Map();
  const ground = (element) => {
    if (!element) return [255, 255, 255, 1];
    if (grounds.has(element)) return grounds.get(element);
    const bar = element.tagName === "text" ? element.parentElement.querySelector(":scope > rect") : null;
    const own = parse(bar ? getComputedStyle(bar).fill : getComputedStyle(element).backgroundColor);
    const found = own[3] === 1 ? own : over(own, ground(element.parentElement));
    grounds.set(element, found);
    return found;
  };
  const opacity = (element) => (element ? Number(getComputedStyle(element).opacity) * opacity(element.parentElement) : 1);
  const found = new Set();
  for (const element of document.querySelectorAll("body *")) {
    const speaks = [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.textContent.trim());
    if (!speaks || element.closest("title, .unseen, .skip") || !element.checkVisibility()) continue;
    const style = getComputedStyle(element);
    const behind = ground(element.tagName === "tspan" ? element.parentElement : element);
    const ink = parse(element instanceof SVGElement ? style.fill : style.color);
    ink[3] *= opacity(element);
    const [a, b] = [light(over(ink, behind)), light(behind)];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (contrast < (large ? 3 : 4.5)) found.add(`${contrast.toFixed(2)} ${element.tagName}: ${element.textContent.slice(0, 40)}`);
  }
  if (document.documentElement.scrollWidth > innerWidth) found.add("the page scrolls sideways");
  for (const table of document.querySelectorAll("table")) {
    const room = table.parentElement;
    if (room.scrollWidth > room.clientWidth) found.add(`cut: ${room.getAttribute("aria-label")}`);
  }
  return [...found];
})();
