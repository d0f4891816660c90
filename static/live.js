// Small comforts; every page works without them.
(() => {
  "use strict";
  // A tab that nobody sees does not poll.
  document.body.addEventListener("htmx:beforeRequest", (event) => {
    if (document.hidden) event.preventDefault();
  });

  // Whoever stands with the keyboard on a link of the part that is refreshed stands there afterwards.
  const named = (element) => [element.tagName, element.id, element.getAttribute("href"), element.getAttribute("aria-label") || element.textContent].join(" ");
  let stood = null;
  document.body.addEventListener("htmx:beforeSwap", (event) => {
    const here = document.activeElement;
    stood = here && here !== document.body && event.detail.target?.contains(here) ? named(here) : null;
  });
  document.body.addEventListener("htmx:afterSwap", (event) => {
    if (stood === null || document.activeElement !== document.body) return;
    const again = Array.from(event.detail.target.querySelectorAll("a[href], button, [tabindex]")).find((each) => named(each) === stood);
    if (again) {
      again.hidden = false;
      again.focus({ preventScroll: true });
    }
  });

  // A link that is replaced between press and release takes no click: it waits for the next refresh.
  let pressed = false;
  for (const [event, is] of [["pointerdown", true], ["pointerup", false], ["pointercancel", false]]) {
    window.addEventListener(event, ({ button }) => { pressed = is && button === 0; }, true);
  }
  document.body.addEventListener("htmx:beforeSwap", (event) => {
    if (pressed && event.detail.target?.id === "live") event.preventDefault();
  });

  // Whoever was logged out meanwhile gets the login page, not a piece of it inside this one.
  document.body.addEventListener("htmx:beforeSwap", (event) => {
    if (new URL(event.detail.xhr.responseURL).pathname !== new URL(event.detail.requestConfig.path, location.href).pathname) {
      event.preventDefault();
      location.reload();
    }
  });

  // The server writes times in the zone of this cookie; it is set at the latest on the login page.
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (zone && !document.cookie.split("; ").includes(`tz=${zone}`)) {
    const secure = location.protocol === "https:" ? ";secure" : "";
    document.cookie = `tz=${zone};path=/;max-age=31536000;samesite=lax${secure}`;
  }

  // On a phone a row becomes a card, whose values carry their columns' headings (fairlane.css).
  // The roles say again what `display: grid` takes away.
  const roles = { TABLE: "table", THEAD: "rowgroup", TBODY: "rowgroup", TR: "row", TD: "cell" };
  const stack = (table) => {
    const headings = Array.from(table.querySelectorAll("thead th"), (cell) => (cell.dataset.short || cell.textContent).trim());
    if (!headings.length) return;
    for (const row of table.tBodies[0]?.rows || []) {
      Array.from(row.cells).forEach((cell, place) => {
        if (cell.tagName === "TD" && cell.colSpan === 1) cell.dataset.label = headings[place] || "";
        if (cell.textContent.trim() === "–") cell.classList.add("none");
      });
    }
    for (const part of [table, ...table.querySelectorAll("thead, tbody, tr, td")]) part.setAttribute("role", roles[part.tagName]);
    for (const cell of table.querySelectorAll("th")) cell.setAttribute("role", cell.scope === "row" ? "rowheader" : "columnheader");
    table.classList.add("stacked");
  };

  // What a button copies is the text of the element that it names, or its own `data-text`.
  const copied = async (button) => {
    const text = button.dataset.text || document.getElementById(button.dataset.copy).textContent.trim();
    await navigator.clipboard.writeText(text);
    const label = button.querySelector(".label") || button;
    const before = label.textContent;
    label.textContent = "Copied";
    setTimeout(() => { label.textContent = before; }, 2000);
  };
  document.body.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy]");
    if (button) copied(button);
  });

  // One box ticks all of its table's.
  document.body.addEventListener("change", (event) => {
    if (!event.target.matches("[data-all]")) return;
    for (const box of event.target.closest("table").querySelectorAll("tbody input[type=checkbox]")) box.checked = event.target.checked;
  });

  const enhance = () => {
    for (const time of document.querySelectorAll("time[datetime]:not([title])")) {
      time.title = new Date(time.dateTime).toISOString().replace("T", " ").replace(/\.000Z$/, " UTC");
    }
    document.querySelectorAll(".table > table:not(.stacked, .fits)").forEach(stack);
    for (const part of document.querySelectorAll("[data-needs-script]")) part.hidden = false;
    if (navigator.clipboard) for (const button of document.querySelectorAll("[data-copy]")) button.hidden = false;
  };
  enhance();
  document.body.addEventListener("htmx:afterSettle", enhance);

  // Filters apply at once; without this there is the button.
  document.body.addEventListener("change", (event) => {
    if (event.target.matches("form[data-auto] :is(select, input[list])")) event.target.form.requestSubmit();
  });
})();
