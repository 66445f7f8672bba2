"use strict";
// Sort and filter the tables of results. The page is complete without it.
(() => {
  const results = [...document.querySelectorAll("table.results")];

  const compare = (a, b) => {
    const [x, y] = [a, b].map((text) => parseFloat(text.replaceAll(",", "")));
    return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b, "en", { numeric: true }) : x - y;
  };

  const sort = (table, column, ascending) => {
    const body = table.tBodies[0];
    const text = (row) => row.cells[column].textContent.trim();
    const rows = [...body.rows].sort((a, b) => {
      const [x, y] = [text(a), text(b)];
      // Sort cells without a value last in both directions.
      const [none, missing] = [x, y].map((value) => value === "" || value === "–");
      if (none || missing) return none - missing;
      return ascending ? compare(x, y) : compare(y, x);
    });
    body.append(...rows);
    [...table.tHead.rows[0].cells].forEach((cell, at) => {
      cell.setAttribute("aria-sort", at !== column ? "none" : ascending ? "ascending" : "descending");
    });
  };

  results.forEach((table) => {
    if (table.tBodies[0].rows.length < 2) return;
    [...table.tHead.rows[0].cells].forEach((cell, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...cell.childNodes);
      button.addEventListener("click", () => sort(table, column, cell.getAttribute("aria-sort") !== "ascending"));
      cell.append(button);
    });
  });

  const form = document.getElementById("filter");
  if (form) {
    const shown = form.querySelector("output");
    const items = [...document.querySelectorAll("[data-text]")];
    const rows = items.filter((item) => item.localName === "tr");
    const filter = () => {
      const words = form.elements.text.value.toLowerCase().split(/\s+/);
      const choices = [...form.querySelectorAll("select")].filter((choice) => choice.value !== "*");
      items.forEach((item) => {
        const found = words.every((word) => item.dataset.text.includes(word));
        item.hidden = !found || choices.some((choice) => item.dataset[choice.name] !== choice.value);
      });
      document.querySelectorAll("section.package, .scroll:has(> table.results)").forEach((part) => {
        const inside = [...part.querySelectorAll("[data-text]")];
        part.hidden = inside.length > 0 && inside.every((item) => item.hidden);
      });
      shown.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} results`;
    };
    form.addEventListener("input", filter);
    form.addEventListener("submit", (event) => event.preventDefault());
    form.hidden = false;
    filter();
  }

  const theme = [...document.querySelectorAll("input[name=theme]")];
  try {
    const wanted = localStorage.getItem("mlperf-hpc-theme");
    theme.forEach((choice) => { choice.checked = choice.value === (wanted ?? "auto"); });
    theme.forEach((choice) => choice.addEventListener("change", () => {
      localStorage.setItem("mlperf-hpc-theme", choice.value);
    }));
  } catch {
    // Without storage the choice lasts until the page is closed.
  }
})();
