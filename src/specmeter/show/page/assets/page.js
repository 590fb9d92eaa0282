"use strict";
// Shows what the page holds: language, theme, charts, sorting, copying. It computes no number.
(function () {
  const root = document.documentElement;
  const payload = JSON.parse(document.getElementById("charts-data").textContent);
  const each = (selector, act) => document.querySelectorAll(selector).forEach(act);

  function remember(name, value) {
    try { localStorage.setItem("specmeter-" + name, value); } catch { /* a page from a file may have no storage */ }
  }
  function recall(name) {
    try { return localStorage.getItem("specmeter-" + name); } catch { return null; }
  }

  // --- language and theme ---------------------------------------------------------------------------------------
  const languages = root.dataset.languages.split(" ");
  function setLanguage(language) {
    root.dataset.language = language;
    root.lang = language === "zh" ? "zh-Hans" : "en";
    each("[data-set-language]", (b) => b.setAttribute("aria-pressed", String(b.dataset.setLanguage === language)));
    each("[data-label-" + language + "]", (e) => e.setAttribute("aria-label", e.getAttribute("data-label-" + language)));
    drawAll();
  }
  function setTheme(theme) {
    if (theme === "auto") delete root.dataset.theme; else root.dataset.theme = theme;
    each("[data-set-theme]", (b) => b.setAttribute("aria-pressed", String(b.dataset.setTheme === theme)));
  }
  each("[data-set-language]", (button) => button.addEventListener("click", () => {
    setLanguage(button.dataset.setLanguage);
    remember("language", button.dataset.setLanguage);
  }));
  each("[data-set-theme]", (button) => button.addEventListener("click", () => {
    setTheme(button.dataset.setTheme);
    remember("theme", button.dataset.setTheme);
  }));
  each("[data-print]", (button) => button.addEventListener("click", () => window.print()));

  // --- charts ---------------------------------------------------------------------------------------------------
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  document.body.append(tip);
  function showTip(_handler, event, _item, value) {
    if (value === null || value === undefined || typeof value !== "object") { tip.hidden = true; return; }
    tip.replaceChildren(...Object.entries(value).map(([name, text]) => {
      const line = document.createElement("div"), key = document.createElement("span"), shown = document.createElement("bdi");
      key.textContent = name;
      shown.textContent = String(text);
      line.append(key, shown);
      return line;
    }));
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 8)) + "px";
    tip.style.top = (event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 10 : event.clientY + 18) + "px";
  }
  const refuse = () => Promise.reject(new Error("a report loads nothing"));
  const loader = { load: refuse, sanitize: refuse, http: refuse, file: refuse };
  const quiet = vega.logger(vega.Error);
  const views = new Map();
  const BREAK = "(.{1,19}/|.{1,19}(?: |$))";
  function narrowed(spec, width, data) {
    const config = spec.config, roomy = width >= 620;
    config.axis.labelLimit = config.axisY.labelLimit = Math.max(96, Math.round(width * (roomy ? 0.36 : 0.4)));
    config.legend.columns = roomy ? 4 : 1;
    config.legend.labelLimit = Math.max(120, width - 60);
    config.axisX = { ...config.axisX, tickCount: roomy ? 8 : 4, labelOverlap: "greedy" };
    if (width < 480) {
      // A row's name takes two lines, and the title of the axis below may reach under the names.
      config.axisX.titleAnchor = "end";
      for (const layer of spec.layer ?? [spec]) {
        const axis = layer.encoding?.y?.field === "arm" ? layer.encoding.y.axis : null;
        const names = axis ? data.map((datum) => datum.arm) : [];
        if (axis && names.some((name) => name.includes(" · "))) {
          Object.assign(axis, { labelExpr: "split(datum.label, ' · ')", labelFontSize: 10, labelLineHeight: 11, labelOffset: -5 });
        } else if (axis) {
          const lines = Math.max(...names.map((name) => (name.match(new RegExp(BREAK, "g")) ?? [name]).length));
          const broken = `trim(replace(datum.label, regexp('${BREAK}', 'g'), '$1\\n'))`;
          const above = `substring('\\n\\n\\n\\n', 0, floor((${lines} - length(split(${broken}, '\\n'))) / 2))`;
          const text = `split(${above} + ${broken}, '\\n')`;
          Object.assign(axis, { labelExpr: text, labelFontSize: 10, labelLineHeight: 11, labelOffset: -5.5 * (lines - 1) });
          const beside = spec.height.for ? layer.encoding.yOffset.scale.domain.length : 1;
          spec.height.step = Math.max(spec.height.step, (11 * lines + 4) / beside);
        }
        const x = layer.encoding?.x;
        if (x?.field === "x" && x.type === "ordinal" && x.scale.domain.join("  ").length * 7 > width - 60) {
          Object.assign(x.axis, { labelAngle: -40, labelOverlap: false });
        }
      }
    }
    return spec;
  }
  async function draw(element) {
    const chart = payload[element.dataset.chart], name = element.getAttribute("aria-label");
    const width = element.clientWidth;
    if (!width) return;
    const spec = narrowed(structuredClone(chart.specs[root.dataset.language]), width, chart.data);
    spec.datasets = { table: structuredClone(chart.data) };
    const compiled = vegaLite.compile(spec, { logger: quiet }).spec;
    const view = new vega.View(vega.parse(compiled, null, { ast: true }), {
      expr: vega.expressionInterpreter, renderer: "svg", container: element, hover: true, loader, tooltip: showTip,
      logLevel: vega.Error,
    });
    const old = views.get(element);
    if (old) old.view.finalize();
    views.set(element, { view, width });
    await view.runAsync();
    element.setAttribute("aria-label", name); // Vega names every chart alike
    element.dataset.drawn = root.dataset.language;
  }
  let drawing = Promise.resolve();
  function drawAll() {
    drawing = drawing.then(async () => {
      for (const element of document.querySelectorAll("[data-chart]")) await draw(element);
      root.dataset.drawn = root.dataset.language;
    });
  }
  let resized = 0;
  addEventListener("resize", () => {
    clearTimeout(resized);
    resized = setTimeout(() => {
      for (const [element, { width }] of views) if (Math.abs(width - element.clientWidth) > 40) { drawAll(); break; }
    }, 200);
  });

  // --- tables ---------------------------------------------------------------------------------------------------
  function key(row, column) {
    const cell = row.cells[column];
    return "value" in cell.dataset ? Number(cell.dataset.value) : cell.innerText.trim();
  }
  function sortBy(header) {
    const table = header.closest("table"), body = table.tBodies[0], column = header.cellIndex;
    const down = header.getAttribute("aria-sort") === "ascending";
    const order = (a, b) => {
      const x = key(a, column), y = key(b, column);
      if (typeof x !== typeof y) return typeof x === "number" ? -1 : 1;
      const by = typeof x === "number" ? x - y : x.localeCompare(y, root.lang, { numeric: true });
      return down ? -by : by;
    };
    body.append(...[...body.rows].sort(order));
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", down ? "descending" : "ascending");
  }
  each("th button", (button) => button.addEventListener("click", () => sortBy(button.closest("th"))));

  function asText(table) {
    const lines = [...table.rows].map((row) => [...row.cells].map((cell) => {
      const struck = cell.querySelector("s") ? " (!)" : "";
      return cell.innerText.replace(/\s+/g, " ").trim() + struck;
    }).join("\t"));
    return lines.join("\n") + "\n";
  }
  async function copy(text) {
    try { await navigator.clipboard.writeText(text); return; } catch { /* not allowed for files in some browsers */ }
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  each(".copy", (button) => button.addEventListener("click", async () => {
    await copy(asText(button.closest(".table").querySelector("table")));
    button.classList.add("done");
    button.querySelectorAll("[data-before]").forEach((e) => { e.hidden = true; });
    button.querySelectorAll("[data-after]").forEach((e) => { e.hidden = false; });
    setTimeout(() => {
      button.querySelectorAll("[data-before]").forEach((e) => { e.hidden = false; });
      button.querySelectorAll("[data-after]").forEach((e) => { e.hidden = true; });
    }, 1500);
  }));

  // --- print: everything that is folded is opened ----------------------------------------------------------------
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open])")];
    for (const part of folded) part.open = true;
  });
  addEventListener("afterprint", () => { for (const part of folded) part.open = false; });

  each("[data-needs-script]", (e) => { e.hidden = false; });
  setTheme(recall("theme") ?? "auto");
  const wanted = recall("language") ?? (navigator.language.startsWith("zh") ? "zh" : "en");
  setLanguage(languages.includes(wanted) ? wanted : languages[0]);
})();
