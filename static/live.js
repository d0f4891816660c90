// Small comforts; every page works without them.
(() => {
  "use strict";
  // A tab that nobody sees does not poll.
  document.body.addEventListener("htmx:beforeRequest", (event) => {
    if (document.hidden) event.preventDefault();
  });

  // Whoever was logged out meanwhile gets the login page, not a piece of it inside this one.
  document.body.addEventListener("htmx:beforeSwap", (event) => {
    if (new URL(event.detail.xhr.responseURL).pathname !== new URL(event.detail.requestConfig.path, location.href).pathname) {
      event.preventDefault();
      location.reload();
    }
  });

  // Times are written in UTC; the title tells them in the viewer's zone.
  const local = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
  const explain = () => {
    for (const time of document.querySelectorAll("time[datetime]:not([title])")) {
      time.title = local.format(new Date(time.dateTime));
    }
  };
  explain();
  document.body.addEventListener("htmx:afterSettle", explain);

  // Filters apply at once; without this there is the button.
  document.body.addEventListener("change", (event) => {
    if (event.target.matches("form[data-auto] select")) event.target.form.requestSubmit();
  });

  const copy = document.querySelector("[data-copy]");
  if (copy && navigator.clipboard) {
    copy.hidden = false;
    copy.addEventListener("click", async () => {
      await navigator.clipboard.writeText(document.getElementById(copy.dataset.copy).textContent.trim());
      copy.textContent = "Copied";
    });
  }
})();
