(() => {
  const root = document.querySelector('.mha-rm[data-view="__ID__"]:not([data-ready])')
  if (!root) return
  root.dataset.ready = "yes"
  const body = root.querySelector("tbody")
  const rows = [...body.rows]
  const line = document.createElement("p")
  line.className = "find"
  const label = document.createElement("label")
  label.textContent = "Show models with "
  const field = document.createElement("input")
  field.type = "search"
  field.placeholder = "sink, Qwen, latent"
  label.append(field)
  const said = document.createElement("span")
  said.setAttribute("role", "status")
  line.append(label, said)
  root.querySelector(".wide").before(line)
  let order = ""
  const say = () => {
    const seen = rows.filter(row => !row.hidden).length
    said.textContent = `${seen} of ${rows.length} models${order}`
  }
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean)
    for (const row of rows) {
      const text = row.textContent.toLowerCase()
      row.hidden = !words.every(word => text.includes(word))
    }
    say()
  })
  const heads = [...root.querySelectorAll("thead th")]
  heads.forEach((head, column) => {
    const button = document.createElement("button")
    button.type = "button"
    const name = head.textContent
    button.textContent = name
    head.replaceChildren(button)
    const value = row => {
      const cell = row.cells[column]
      const number = cell.dataset.n ?? cell.dataset.by
      return number === undefined ? cell.querySelector("b").textContent.toLowerCase() : Number(number)
    }
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending"
      for (const other of heads) other.removeAttribute("aria-sort")
      head.setAttribute("aria-sort", down ? "descending" : "ascending")
      heads.forEach(other => {
        const own = other.querySelector("button")
        own.textContent = own.textContent.replace(/ [▲▼]$/, "") + (other === head ? (down ? " ▼" : " ▲") : "")
      })
      const sign = down ? -1 : 1
      rows.sort((a, b) => {
        const [x, y] = [value(a), value(b)]
        return sign * ((x > y) - (x < y))
      })
      body.append(...rows)
      order = `, sorted by ${head.dataset.by ?? name}, ${down ? "largest" : "smallest"} first`
      say()
    })
  })
  say()
})()
