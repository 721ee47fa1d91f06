// A field above the long tables of a page, which hides the rows whose first cell does not hold the words typed.
document.addEventListener("DOMContentLoaded", () => {
  const fewRows = 1000;
  // Each heading with its tables.
  const sections = [];
  for (const element of document.querySelectorAll("article h2, article table")) {
    if (element.matches("h2")) sections.push({ heading: element, tables: [] });
    else sections.at(-1)?.tables.push(element);
  }
  const rows = sections.flatMap(({ tables }) => tables.flatMap((table) => [...table.tBodies[0].rows]));
  if (rows.length < fewRows) return;

  const field = document.createElement("input");
  field.type = "search";
  field.placeholder = "Filter by name, such as conv";
  field.setAttribute("aria-label", "Filter the rows of the tables");
  const found = document.createElement("output");
  const filter = document.createElement("div");
  filter.className = "table-filter";
  filter.append(field, found);
  sections[0].heading.before(filter);

  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    const shown = (row) => words.every((word) => row.cells[0].textContent.toLowerCase().includes(word));
    let count = 0;
    for (const { heading, tables } of sections) {
      for (const table of tables) {
        for (const row of table.tBodies[0].rows) row.hidden = !shown(row);
        const left = [...table.tBodies[0].rows].filter((row) => !row.hidden).length;
        table.hidden = left === 0;
        count += left;
      }
      heading.hidden = tables.length > 0 && tables.every((table) => table.hidden);
    }
    found.textContent = words.length ? `${count} of ${rows.length} rows` : "";
  });
});
