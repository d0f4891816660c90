// Draws the figures that the page carries as JSON, in the page's colours, and again after each
// live refresh. A figure is {"data": […], "layout": {…}}; the server decides everything but colour.
(() => {
  "use strict";
  const config = { displaylogo: false, displayModeBar: "hover", responsive: true, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "toImage"] };
  const probe = document.createElement("span");
  probe.hidden = true;
  document.body.append(probe);

  // light-dark() in a custom property is only resolved where a real property uses it.
  const colour = (name) => {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
  };

  const themed = (figure) => {
    const [text, muted, line, surface] = ["--text", "--muted", "--line", "--surface"].map(colour);
    const axis = { gridcolor: line, zerolinecolor: line, linecolor: line, tickcolor: line, tickfont: { color: muted }, automargin: true };
    const layout = { ...figure.layout, paper_bgcolor: "transparent", plot_bgcolor: "transparent" };
    layout.font = { family: getComputedStyle(document.body).fontFamily, size: 12, color: text };
    layout.hoverlabel = { bgcolor: surface, bordercolor: line, font: { color: text } };
    for (const key of ["xaxis", "yaxis", "yaxis2"]) if (key !== "yaxis2" || figure.layout[key]) layout[key] = { ...axis, ...(figure.layout[key] || {}) };
    const shapes = (figure.layout.shapes || []).map((shape) => ({ ...shape, line: { color: muted, ...shape.line } }));
    const annotations = (figure.layout.annotations || []).map((note) => ({ ...note, font: { color: muted, size: 11 } }));
    // A trace in the colour of the page's text, whatever that is.
    const data = figure.data.map((trace) => (trace.meta === "text" ? { ...trace, line: { ...trace.line, color: text } } : trace));
    return { data, layout: { ...layout, shapes, annotations } };
  };

  const message = (place, title, text) => {
    if (place.data) window.Plotly.purge(place);
    const note = document.createElement("p");
    note.className = "empty";
    const strong = document.createElement("strong");
    strong.textContent = title;
    note.append(strong, text);
    place.replaceChildren(note);
  };

  const draw = () => {
    for (const place of document.querySelectorAll(".chart[data-figure]")) {
      const source = document.getElementById(place.dataset.figure);
      if (!source) continue;
      if (!window.Plotly) {
        message(place, "The chart could not be drawn", "Its library did not load. Reload the page; the CSV has the figures.");
        continue;
      }
      const { data, layout } = themed(JSON.parse(source.textContent));
      if (!data.length) {
        message(place, "Nothing to draw", place.dataset.empty);
        continue;
      }
      if (!place.data) place.replaceChildren();
      layout.uirevision = "kept"; // zoom and hidden traces stay through a refresh
      const drawn = window.Plotly.react(place, data, layout, config);
      // A legend of several rows is first placed as if it were one, over the chart.
      if (layout.showlegend) drawn.then(() => window.Plotly.react(place, data, layout, config));
    }
    offer();
  };

  // A chart that is drawn can be saved.
  const offer = () => {
    for (const button of document.querySelectorAll("[data-png]")) {
      button.hidden = !document.getElementById(button.dataset.png)?.data;
    }
  };

  // A picture has the page's ground, so that it can be read where it is put.
  document.body.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-png]");
    const place = button && document.getElementById(button.dataset.png);
    if (!place?.data) return;
    const layout = { ...place.layout, paper_bgcolor: colour("--surface"), title: { text: button.closest("section").querySelector("h2").textContent } };
    layout.margin = { ...layout.margin, t: 48 };
    layout.showlegend = true;
    await window.Plotly.downloadImage({ data: place.data, layout }, { format: "png", width: 1200, height: 560, scale: 2, filename: `fairlane-${button.dataset.png}` });
  });

  // Names that are suggested while somebody types come by htmx, too.
  const isRefresh = (event) => event.detail.target?.id === "live";
  const stale = document.getElementById("stale");
  for (const failed of ["htmx:sendError", "htmx:responseError", "htmx:timeout"]) {
    document.body.addEventListener(failed, (event) => { if (stale && isRefresh(event)) stale.hidden = false; });
  }
  // At once, so that the keyboard finds a button where it was (live.js).
  document.body.addEventListener("htmx:afterSwap", (event) => { if (isRefresh(event)) offer(); });
  document.body.addEventListener("htmx:afterSettle", (event) => {
    if (!isRefresh(event)) return;
    if (stale) stale.hidden = true;
    draw();
  });

  document.querySelector(".segments.scroll [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
