// The pages work without this file; it adds buttons that copy, and keeps a page
// that shows a key once from sending its form again when it is reloaded.
"use strict";

function select(node) {
  const range = document.createRange();
  range.selectNodeContents(node);
  const selection = getSelection();
  selection.removeAllRanges();
  selection.addRange(range);
}

async function copy(node) {
  if (navigator.clipboard) {
    return navigator.clipboard.writeText(node.textContent);
  }
  // Browsers hide the clipboard from pages that came over plain HTTP.
  select(node);
  if (!document.execCommand("copy")) {
    throw new Error("not copied");
  }
}

for (const button of document.querySelectorAll("button[data-copy]")) {
  const label = button.textContent;
  button.hidden = false;
  button.setAttribute("aria-live", "polite");
  button.addEventListener("click", async () => {
    const node = document.getElementById(button.dataset.copy);
    try {
      await copy(node);
      button.textContent = "Copied";
    } catch {
      select(node);
      button.textContent = "Press Ctrl+C";
    }
    setTimeout(() => { button.textContent = label; }, 2500);
  });
}

const shownOnce = document.querySelector("[data-now-at]");
if (shownOnce) {
  history.replaceState(null, "", shownOnce.dataset.nowAt);
}
