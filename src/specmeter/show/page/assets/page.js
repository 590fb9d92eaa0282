"use strict";
// Shows what the page holds: language, theme, charts, sorting, copying. It computes no number.
(function () {
  const root = document.documentElement;
  const payload = JSON.parse(document.getElementById("charts-data").textContent);
  const each = (selector, act, within = document) => within.querySelectorAll(selector).forEach(act);

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
    each("[data-set-language]", (b) => {
      b.setAttribute("aria-pressed", String(b.dataset.setLanguage === language));
      if (b.dataset.setLanguage === language) root.lang = b.lang;
    });
    each("[data-label-" + language + "]", (e) => e.setAttribute("aria-label", e.getAttribute("data-label-" + language)));
    each("option", (e) => { e.textContent = e.getAttribute("data-say-" + language); });
    show();
  }
  function setTheme(theme) {
    if (theme === "auto") delete root.dataset.theme; else root.dataset.theme = theme;
    each("[data-set-theme]", (b) => b.setAttribute("aria-pressed", String(b.dataset.setTheme === theme)));
  }
  each("[data-set-language]", (button) => button.addEventListener("click", () => {
    setLanguage(button.dataset.setLanguage);
    remember("language", button.dataset.setLanguage);
  }));
  // On a phone one theme is shown, and pressing it takes the next.
  each("[data-set-theme]", (button) => button.addEventListener("click", () => {
    const alone = [...button.parentElement.children].every((other) => other === button || !other.offsetWidth);
    const chosen = alone ? button.nextElementSibling ?? button.parentElement.firstElementChild : button;
    setTheme(chosen.dataset.setTheme);
    remember("theme", chosen.dataset.setTheme);
    if (alone) chosen.focus();
  }));
  each("[data-show-filters]", (button) => button.addEventListener("click", () => {
    button.setAttribute("aria-expanded", String(button.getAttribute("aria-expanded") !== "true"));
  }));
  each("[data-print]", (button) => button.addEventListener("click", () => window.print()));

  // --- filters: what readers choose of targets, methods and kinds; it is kept in the address ---------------------
  const FILTERS = ["target", "method", "kind", "document", "ruling"];
  const selects = [...document.querySelectorAll("[data-filter]")];
  const chosen = {};
  const fits = (of) => FILTERS.every((name) => !chosen[name] || !of[name] || of[name] === chosen[name]);
  const isChosen = () => FILTERS.some((name) => chosen[name]);
  // [the place, the choices behind it]: one look at each part, since an address may be as long as a stranger likes.
  function parted() {
    const parts = location.hash.replace(/^#/, "").split("&");
    let end = parts.length;
    while (end > 1 && FILTERS.some((name) => parts[end - 1].startsWith(name + "="))) end--;
    return [parts.slice(0, end).join("&"), parts.slice(end)];
  }
  const anchor = () => parted()[0];
  function decoded(text) {
    try { return decodeURIComponent(text); } catch { return ""; }
  }
  function address(place) {
    const parts = FILTERS.filter((name) => chosen[name]).map((name) => "&" + name + "=" + encodeURIComponent(chosen[name]));
    return place || parts.length ? "#" + place + parts.join("") : location.pathname + location.search;
  }
  function choose(wanted) {
    for (const select of selects) {
      const known = [...select.options].some((option) => option.value === wanted[select.dataset.filter]);
      select.value = chosen[select.dataset.filter] = known ? wanted[select.dataset.filter] : "";
    }
    each("tbody tr", (row) => { row.hidden = !fits(row.dataset); });
    each("[data-filter-none]", (button) => { button.disabled = !isChosen(); });
    root.toggleAttribute("data-filtered", isChosen());
  }
  function chooseHere() {
    const parts = parted()[1].map((part) => part.split("="));
    if (parts.length) choose(Object.fromEntries(parts.map(([name, value]) => [name, decoded(value)])));
    else if (isChosen()) history.replaceState(null, "", address(anchor())); // a link within the page keeps the choice
    unfoldTo(decoded(anchor()), parts.length > 0);
  }
  function unfoldTo(id, scroll) {
    const place = id && document.getElementById(id);
    if (!place) return;
    for (let part = place.closest("details"); part; part = part.parentElement.closest("details")) {
      if (!part.open) { part.open = true; scroll = true; }
    }
    if (scroll) place.scrollIntoView();
  }
  for (const select of selects) {
    select.addEventListener("change", () => {
      choose(Object.fromEntries(selects.map((one) => [one.dataset.filter, one.value])));
      history.replaceState(null, "", address(anchor()));
      show();
    });
  }
  each("[data-filter-none]", (button) => button.addEventListener("click", () => {
    choose({});
    history.replaceState(null, "", address(anchor()));
    show();
  }));
  addEventListener("hashchange", () => { chooseHere(); show(); });
  each("[data-unfold]", (button) => button.addEventListener("click", () => {
    const parts = [...button.closest("section").querySelectorAll(button.dataset.unfold)];
    const closed = parts.some((part) => !part.open);
    for (const part of parts) part.open = closed;
  }));

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
  const quiet = globalThis.vega?.logger(vega.Error); // pages without charts come without Vega
  const views = new Map();
  const breakAt = (most) => `(.{1,${most}}/|.{1,${most}}(?: |$))`;
  // Names that the chosen data does not have leave axes and legends; those that stay keep their colour and shape.
  function pruned(spec, data) {
    for (const layer of spec.layer ?? []) {
      for (const [channel, of] of Object.entries(layer.encoding ?? {})) {
        const scale = of.scale, names = scale?.domain;
        if (!["x", "y", "color", "fill", "stroke", "shape", "xOffset", "yOffset", "strokeDash"].includes(channel)) continue;
        if (of.type === "quantitative" || !Array.isArray(names)) continue;
        const kept = names.map((name) => data.some((datum) => String(datum[of.field]) === String(name)));
        if (!kept.includes(true)) continue;
        scale.domain = names.filter((_, place) => kept[place]);
        if (scale.range?.length === names.length) scale.range = scale.range.filter((_, place) => kept[place]);
      }
    }
  }
  function narrowed(spec, width, data) {
    const config = spec.config, roomy = width >= 620;
    for (const param of spec.params ?? []) if (param.name === "roomy" && !roomy) param.value = 0.3;
    spec.width = width;
    if (paper && typeof spec.height === "number") spec.height *= 0.75;
    config.axis.labelLimit = config.axisY.labelLimit = Math.max(96, Math.round(width * (roomy ? 0.36 : 0.4)));
    config.legend.columns = roomy ? 4 : 1;
    config.legend.labelLimit = Math.max(120, width - 60);
    // A short legend stands beside the plot.
    const told = (spec.layer ?? []).flatMap((layer) => Object.values(layer.encoding ?? {}))
      .flatMap((of) => of.legend ? of.scale?.domain ?? [] : []).map((name) => String(name).length);
    if (roomy) config.legend.columns = Math.max(1, Math.min(4, Math.floor((width - 60) / (6.2 * Math.max(1, ...told) + 30))));
    if (roomy && Math.max(0, ...told) <= 26) Object.assign(config.legend, { orient: "right", columns: 1, offset: 12 });
    config.axisX = { ...config.axisX, tickCount: roomy ? 8 : 4, labelOverlap: "greedy" };
    if (width < 480) {
      // A row's name takes two lines, and the title of the axis below may reach under the names.
      config.axisX.titleAnchor = "end";
      for (const layer of spec.layer ?? [spec]) {
        const field = layer.encoding?.y?.field ?? "";
        const axis = /^(arm$|named_|row_)/.test(field) ? layer.encoding.y.axis : null;
        const names = axis ? data.map((datum) => datum[field]) : [];
        if (axis) {
          const at = breakAt(root.dataset.language === "zh" ? 18 : 24); // Chinese characters are wider
          const wrap = new RegExp(at, "g");
          const lines = Math.max(...names.map((name) => name.split(" · ").flatMap((part) => part.match(wrap) ?? [part]).length));
          const broken = `trim(replace(replace(datum.label, regexp(' · ', 'g'), '\\n'), regexp('${at}', 'g'), '$1\\n'))`;
          const above = `substring('\\n\\n\\n\\n', 0, floor((${lines} - length(split(${broken}, '\\n'))) / 2))`;
          const text = `split(${above} + ${broken}, '\\n')`;
          Object.assign(axis, { labelExpr: text, labelFontSize: 10, labelLineHeight: 11, labelOffset: -5.5 * (lines - 1) });
          const of = spec.height.for ? layer.encoding.yOffset : null, beside = (of?.scale?.domain ?? of?.sort ?? [1]).length;
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
  // What is folded has no width yet: it gets that of what folds it, so that it is there when it is unfolded or printed.
  const widthOf = (element) => element.clientWidth || element.closest("details")?.clientWidth || 0;
  let paper = 0;
  async function draw(element) {
    const chart = payload[element.dataset.chart], name = element.getAttribute("aria-label");
    const data = chart.data.filter(fits);
    element.toggleAttribute("data-empty", !data.length);
    const width = paper || widthOf(element);
    if (!width || !data.length) return;
    const spec = narrowed(structuredClone(chart.specs[root.dataset.language]), width, data);
    if (isChosen()) pruned(spec, data);
    spec.datasets = { table: structuredClone(data) };
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
  function show() {
    hint();
    drawAll();
  }
  function hint() {
    each(".table", (table) => {
      const scroll = table.querySelector(".scroll");
      const left = [...scroll.querySelectorAll("th.drop")].some((head) => !head.offsetWidth);
      table.querySelector(".hint").hidden = !left && scroll.scrollWidth <= scroll.clientWidth + 1;
    });
  }
  let resized = 0;
  function later() {
    clearTimeout(resized);
    resized = setTimeout(() => {
      hint();
      for (const [element, { width }] of views) if (Math.abs(width - widthOf(element)) > 40) { drawAll(); break; }
    }, 200);
  }
  addEventListener("resize", later);
  each("details", (part) => part.addEventListener("toggle", later));

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
  function asText(table) {
    const lines = [...table.rows].filter((row) => !row.hidden).map((row) => [...row.cells].map((cell) => {
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
  const copies = (button) => button.addEventListener("click", async () => {
    const command = button.closest(".command")?.querySelector("pre").textContent;
    await copy(command ?? asText(button.closest(".table").querySelector("table")));
    button.classList.add("done");
    button.querySelectorAll("[data-before]").forEach((e) => { e.hidden = true; });
    button.querySelectorAll("[data-after]").forEach((e) => { e.hidden = false; });
    setTimeout(() => {
      button.querySelectorAll("[data-before]").forEach((e) => { e.hidden = false; });
      button.querySelectorAll("[data-after]").forEach((e) => { e.hidden = true; });
    }, 1500);
  });
  function wire(part) {
    each("th button", (button) => button.addEventListener("click", () => sortBy(button.closest("th"))), part);
    each(".copy", copies, part);
    each(".hint", (button) => button.addEventListener("click", () => {
      button.closest(".table").classList.add("all");
      button.closest(".table").querySelector(".scroll").focus();
      hint();
    }), part);
    each("[data-needs-script]", (e) => { e.hidden = false; }, part);
  }

  // --- a page of what is still measured: while it is looked at, it is asked for again -------------------------------
  const LIVE_MS = 3000;
  let shownLast = "";
  async function refresh() {
    const live = document.querySelector("[data-live]");
    if (document.hidden || !live) return;
    try {
      const text = await (await fetch(location.href, { cache: "no-store" })).text();
      const fresh = new DOMParser().parseFromString(text, "text/html").querySelector("[data-live]");
      document.querySelector("[data-gone]").hidden = true;
      if (!fresh) location.reload(); // it is finished: the whole report is there
      else if (fresh.innerHTML !== shownLast) {
        shownLast = fresh.innerHTML;
        const ticked = new Set([...live.querySelectorAll("input:checked")].map((it) => it.value));
        live.replaceWith(fresh);
        each("input", (it) => { it.checked = ticked.has(it.value); }, fresh);
        wire(fresh);
        setLanguage(root.dataset.language);
      }
    } catch { document.querySelector("[data-gone]").hidden = false; }
  }
  if (document.querySelector("[data-live]")) setInterval(refresh, LIVE_MS);

  // --- print: what is folded stays so, and charts are drawn for the paper -------------------------------------------
  const PAPER_PX = 960; // A4 within the margins of the style sheet, which makes charts smaller
  addEventListener("beforeprint", () => {
    paper = PAPER_PX;
    drawAll();
  });
  addEventListener("afterprint", () => {
    paper = 0;
    drawAll();
  });

  wire(document);
  setTheme(recall("theme") ?? "auto");
  chooseHere();
  const wanted = recall("language") ?? navigator.language;
  setLanguage(languages.find((it) => wanted.startsWith(it)) ?? languages[0]);
  // Charts push down what the address leads to.
  if (anchor()) drawing = drawing.then(() => unfoldTo(decoded(anchor()), true));
})();
