// Draws the figures that the page carries as JSON, in the page's colours, and again after each
// live refresh. A figure is {"data": […], "layout": {…}}; the server decides everything but colour.
(() => {
  "use strict";
  const config = { displaylogo: false, responsive: true, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] };
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
    for (const key of ["xaxis", "yaxis"]) layout[key] = { ...axis, ...(figure.layout[key] || {}) };
    const shapes = (figure.layout.shapes || []).map((shape) => ({ ...shape, line: { color: muted, ...shape.line } }));
    const annotations = (figure.layout.annotations || []).map((note) => ({ ...note, font: { color: muted, size: 11 } }));
    return { data: figure.data, layout: { ...layout, shapes, annotations } };
  };

  const draw = () => {
    for (const place of document.querySelectorAll(".chart[data-figure]")) {
      const source = document.getElementById(place.dataset.figure);
      if (!source) continue;
      const figure = JSON.parse(source.textContent);
      const { data, layout } = themed(figure);
      if (!data.length) {
        if (place.data) window.Plotly.purge(place);
        place.innerHTML = '<p class="empty"><strong>No data in this range</strong></p>';
        place.firstChild.append(place.dataset.empty);
        continue;
      }
      if (!place.data) place.replaceChildren();
      layout.uirevision = "kept"; // zoom and hidden traces stay through a refresh
      window.Plotly.react(place, data, layout, config);
    }
  };

  draw();
  document.body.addEventListener("htmx:afterSettle", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
