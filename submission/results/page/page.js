"use strict";
// Sort and filter tables and figures, show cards on points, copy tables. The page is complete without it.
(() => {
  const all = (selector, part = document) => [...part.querySelectorAll(selector)];
  const make = (tag, properties) => Object.assign(document.createElement(tag), properties);

  // -- the state of the page in its address -----------------------------------------------------------------

  const state = new URLSearchParams(location.search);
  const keep = (name, value) => {
    if (value) state.set(name, value);
    else state.delete(name);
    const query = state.size ? `?${state}` : "";
    history.replaceState(null, "", `${location.pathname}${query}${location.hash}`);
  };

  // -- tables -----------------------------------------------------------------------------------------------

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

  const sorts = { ascending: "up", descending: "down" };
  all("table.results").forEach((table, at) => {
    if (table.tBodies[0].rows.length < 2) return;
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((cell, column) => {
      const button = make("button", { type: "button" });
      button.append(...cell.childNodes);
      button.addEventListener("click", () => {
        sort(table, column, cell.ariaSort !== "ascending");
        keep(`sort${at + 1}`, `${sorts[cell.ariaSort]} ${button.textContent}`);
      });
      cell.append(button);
    });
    const [direction, ...words] = (state.get(`sort${at + 1}`) ?? "").split(" ");
    const column = heads.findIndex((cell) => cell.textContent === words.join(" "));
    if (column >= 0) sort(table, column, direction === sorts.ascending);
  });

  const csv = (table) => [...table.rows].filter((row) => row.checkVisibility()).map((row) => [...row.cells].map((cell) => {
    const text = cell.innerText.trim().replace(/\s+/g, " ");
    // Signs of verdicts, and what stands beside a number, are no values.
    const number = text.replace(/^~?(\S+?)(\*|\/\d+| in| out| both| of \d+ runs)$/, "$1").replace(/(?<=\d),(?=\d{3})/g, "");
    // A name that a spreadsheet would run as a formula gets an apostrophe, as in the files of the commands.
    const name = text.replace(/^[✕!…✓] (?=[A-Z])/, "").replace(/^(?=[=+@-])/, "'");
    const plain = /\bnumber\b/.test(cell.className) ? number : name;
    return /[",]/.test(plain) ? `"${plain.replaceAll('"', '""')}"` : plain;
  }).join(",")).join("\r\n");

  all(".scroll > table").forEach((table) => {
    const button = make("button", { type: "button", className: "copy", textContent: "Copy as CSV" });
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(csv(table)).then(
        () => { button.textContent = "Copied"; },
        () => { button.textContent = "The browser does not allow it"; },
      );
      setTimeout(() => { button.textContent = "Copy as CSV"; }, 2000);
    });
    table.parentElement.before(button);
  });

  // -- filter -----------------------------------------------------------------------------------------------

  const form = document.getElementById("filter");
  if (form) {
    const count = form.querySelector("output");
    const rows = all("tr[data-text]");
    const parts = all("[data-result]").filter((part) => part.localName !== "tr");
    const fields = all("input, select", form);
    const filter = () => {
      const words = form.elements.text.value.toLowerCase().split(/\s+/);
      const choices = all("select", form).filter((choice) => choice.value !== "*");
      const visible = rows.filter((row) => {
        const fits = words.every((word) => row.dataset.text.includes(word));
        row.hidden = !fits || choices.some((choice) => row.dataset[choice.name] !== choice.value);
        return !row.hidden;
      });
      const results = new Set(visible.map((row) => row.dataset.result));
      parts.forEach((part) => {
        // The same runs in several rounds are drawn once.
        const away = !part.dataset.result.split("\n").some((name) => results.has(name));
        if (part instanceof SVGElement) part.classList.toggle("away", away);
        else part.hidden = away;
      });
      all("section.part, .scroll:has(> table.results)").forEach((part) => {
        const inside = all("tr[data-result], details[data-result]", part);
        part.hidden = inside.length > 0 && inside.every((item) => item.hidden);
      });
      count.textContent = visible.length ? `${visible.length} of ${rows.length} results` : "no result matches";
    };
    fields.forEach((field) => {
      field.value = state.get(field.name) ?? field.value;
      if (field.selectedIndex < 0) field.value = "*";
    });
    form.addEventListener("input", () => {
      filter();
      fields.forEach((field) => keep(field.name, field.value === "*" ? "" : field.value));
    });
    form.addEventListener("submit", (event) => event.preventDefault());
    form.hidden = false;
    filter();
  }

  // -- cards on points of figures and on shortened names -------------------------------------------------------

  const card = make("div", { className: "card", hidden: true });
  card.setAttribute("role", "status");
  document.body.append(card);
  const hints = new WeakMap();
  let current = null;

  const hintOf = (part) => {
    const title = part instanceof SVGElement ? [...part.children].find((child) => child.localName === "title") : null;
    // Without its title the browser shows no second card.
    if (title) hints.set(part, title.textContent);
    else if (part.title) hints.set(part, part.title);
    title?.remove();
    part.removeAttribute("title");
    part.classList.add("hint");
    return hints.get(part);
  };

  const show = (part) => {
    current?.classList.remove("current");
    current = part;
    const text = part && hintOf(part);
    card.hidden = !text;
    if (!text) return;
    part.classList.add("current");
    card.textContent = text;
    const [box, size] = [part.getBoundingClientRect(), card.getBoundingClientRect()];
    const below = box.bottom + 8 + size.height < innerHeight;
    card.style.left = `${Math.max(8, Math.min(box.left + box.width / 2 - size.width / 2, innerWidth - size.width - 8))}px`;
    card.style.top = `${Math.max(8, below ? box.bottom + 8 : box.top - size.height - 8)}px`;
  };

  const isPoint = (part) => hints.has(part) || part.title || all(":scope > title", part).length > 0;
  const pointAt = (target) => {
    const part = target.closest?.("svg[role=img] *, [title], .hint");
    return part && isPoint(part) ? part : null;
  };
  // Touch gives these events, too: a tap shows the card until the next one elsewhere.
  document.addEventListener("pointerover", (event) => show(pointAt(event.target)));
  document.addEventListener("pointerdown", (event) => show(pointAt(event.target)));
  addEventListener("scroll", () => show(current), { passive: true, capture: true });

  // Figures take the focus, the arrow keys go from point to point.
  all("svg[role=img]").forEach((figure) => {
    const frame = figure.closest(".canvas") ?? figure;
    frame.tabIndex = 0;
    let at = -1;
    const move = (step) => {
      const points = all("*", figure).filter((part) => part.parentElement.localName !== "title" && isPoint(part));
      if (!points.length) return;
      at = (at + step + points.length) % points.length;
      points[at].scrollIntoView({ block: "nearest", inline: "nearest" });
      show(points[at]);
    };
    frame.addEventListener("focus", () => { if (frame.matches(":focus-visible")) move(at < 0 ? 1 : 0); });
    frame.addEventListener("blur", () => show(null));
    frame.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (event.key === "Escape") show(null);
      if (!step) return;
      event.preventDefault();
      move(step);
    });
  });

  // -- colours -----------------------------------------------------------------------------------------------

  const theme = all("input[name=theme]");
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
