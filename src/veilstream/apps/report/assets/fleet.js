for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, i) => {
    const text = head.textContent, button = document.createElement("button");
    button.type = "button"; button.textContent = text; head.replaceChildren(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach(h => h.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = row => row.cells[i].dataset.v ?? row.cells[i].textContent;
      const order = (a, b) => { const [x, y] = [key(a), key(b)], [p, q] = [Number(x), Number(y)];
        return x !== "" && y !== "" && !isNaN(p) && !isNaN(q) ? p - q : x.localeCompare(y); };
      body.append(...[...body.rows].sort((a, b) => up ? order(a, b) : order(b, a)));
    });
  });
}
