"""Finds faults of a page's layout: what a reader would see as cut, overlapping or outside of its box."""

# Runs in the page. Only what is drawn counts: closed details, hidden sections and scrolled text are left out.
SCRIPT = r"""
(() => {
  const faults = [];
  const name = (e) => {
    const path = [];
    for (; e && e !== document.body; e = e.parentElement)
      path.unshift(e.tagName.toLowerCase() + (e.id ? "#" + e.id : e.classList.length ? "." + e.classList[0] : ""));
    return path.slice(-4).join(" > ");
  };
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > width)
    faults.push(`the page is ${document.documentElement.scrollWidth} wide, the screen ${width}`);
  const drawn = (e) => e.checkVisibility({ visibilityProperty: true }) && e.getClientRects().length > 0;
  const scrolls = (e) => ["auto", "scroll", "hidden"].includes(getComputedStyle(e).overflowX);
  for (const e of document.body.querySelectorAll("*")) {
    if (!drawn(e) || ["SCRIPT", "NOSCRIPT", "OPTION"].includes(e.tagName)) continue;
    const box = e.getBoundingClientRect();
    const parent = e.parentElement.getBoundingClientRect();
    const is_free = ["fixed", "absolute"].includes(getComputedStyle(e).position) || e.closest("svg svg, g");
    if (!is_free && !e.ownerSVGElement && (box.right > parent.right + 1 || box.left < parent.left - 1))
      faults.push(`${name(e)} sticks out of its parent by ${Math.round(box.right - parent.right)}`);
    if (e.ownerSVGElement && (box.right > parent.right + 1 || box.left < parent.left - 1 ||
                              box.bottom > parent.bottom + 1 || box.top < parent.top - 1))
      faults.push(`${name(e)} sticks out of its picture: ${e.textContent}`);
    if (scrolls(e) && e.scrollWidth > e.clientWidth + 1) faults.push(`${name(e)} has to be scrolled sideways`);
  }
  // The lines of all texts: inside of their box, and none over another.
  const lines = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const owner = node.parentElement;
    if (!node.textContent.trim() || !drawn(owner) || owner.closest("pre, script, noscript")) continue;
    const dialog = document.querySelector("dialog[open]");
    if (dialog && !dialog.contains(owner)) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    let block = owner;
    while (getComputedStyle(block).display === "inline" && !block.ownerSVGElement) block = block.parentElement;
    const around = (block.ownerSVGElement || block).getBoundingClientRect();
    for (const box of range.getClientRects()) {
      if (box.width < 1) continue;
      if (box.right > around.right + 1 || box.left < around.left - 1)
        faults.push(`"${node.textContent.trim().slice(0, 40)}" is cut or sticks out of ${name(block)}`);
      lines.push({ box, text: node.textContent.trim().slice(0, 40) });
    }
  }
  for (let i = 0; i < lines.length; ++i)
    for (let j = i + 1; j < lines.length; ++j) {
      const a = lines[i].box, b = lines[j].box;
      const x = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const y = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      // Lines of text are higher than their letters.
      if (x > 1.5 && y > Math.min(a.height, b.height) * 0.4)
        faults.push(`"${lines[i].text}" lies over "${lines[j].text}"`);
    }
  return faults;
})()
"""


def faults(page):
    """What is wrong with the layout of the shown page, as sentences."""
    return page.run(SCRIPT)
