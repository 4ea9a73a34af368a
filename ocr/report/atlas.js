"use strict"
const $ = id => document.getElementById(id)
const make = (tag, className, text) => {
  const node = document.createElement(tag)
  if (className) node.className = className
  if (text !== undefined) node.textContent = text
  return node
}
const SVG = "http://www.w3.org/2000/svg"
const index = JSON.parse($("index").textContent)
const view = { cause: "", kind: "", shown: [], at: -1, error: -1, zoom: 1 }

// Pictures and outlines of a page are read when it is shown, and forgotten when it is not.
const read = page => JSON.parse($("page-" + page.id).textContent)

const fits = error => (!view.cause || error.cause === view.cause) && (!view.kind || error.kind === view.kind)
const polygon = (points, className) => {
  const node = document.createElementNS(SVG, "polygon")
  node.setAttribute("points", points.join(" "))
  node.setAttribute("class", className)
  return node
}

function draw(page, holder) {
  const data = read(page)
  const image = make("img")
  image.src = "data:image/webp;base64," + data.picture
  image.alt = ""
  const svg = document.createElementNS(SVG, "svg")
  svg.setAttribute("viewBox", `0 0 ${page.width} ${page.height}`)
  svg.setAttribute("role", "img")
  svg.setAttribute("aria-label", page.name)
  for (const [points, ignored] of data.truth) svg.append(polygon(points, ignored ? "ignored" : "truth"))
  for (const points of data.boxes) svg.append(polygon(points, "box"))
  data.errors.forEach((error, at) => {
    const node = polygon(error.points, error.kind + (fits(error) ? "" : " dim"))
    node.dataset.at = at
    svg.append(node)
  })
  holder.replaceChildren(image, svg)
  return data
}

const watcher = new IntersectionObserver(entries => {
  for (const { target, isIntersecting } of entries) {
    const holder = target.querySelector(".sheet")
    if (isIntersecting) draw(target.page, holder)
    else holder.replaceChildren()
  }
}, { rootMargin: "400px" })

function count(page) {
  return page.marks.reduce((sum, [kind, cause, number]) => sum + (fits({ kind, cause }) ? number : 0), 0)
}

const ORDERS = {
  worst: (a, b) => a.hmean - b.hmean,
  best: (a, b) => b.hmean - a.hmean,
  errors: (a, b) => count(b) - count(a),
  change: (a, b) => a.change - b.change,
  name: (a, b) => a.name.localeCompare(b.name),
}

function update() {
  const wanted = $("search").value.toLowerCase()
  const filtered = view.cause || view.kind
  view.shown = index.pages.filter(page => page.name.toLowerCase().includes(wanted) && (!filtered || count(page)))
  view.shown.sort(ORDERS[$("order").value])
  watcher.disconnect()
  $("grid").replaceChildren(...view.shown.map(card))
  const errors = view.shown.reduce((sum, page) => sum + count(page), 0)
  $("shown").textContent = `${view.shown.length} pages, ${errors} marks`
  for (const button of document.querySelectorAll("button[data-cause]"))
    button.setAttribute("aria-pressed", button.dataset.cause === view.cause)
}

function card(page, at) {
  const node = make("button", "thumbnail"), box = make("div", "view"), caption = make("div", "caption")
  const picture = make("div", "sheet")
  picture.style.aspectRatio = `${page.width} / ${page.height}`
  picture.style[page.width * 240 > page.height * 200 ? "width" : "height"] = "100%"
  box.append(picture)
  const change = page.change === undefined ? "" : ` (${page.change >= 0 ? "+" : "−"}${Math.abs(page.change).toFixed(1)} points)`
  caption.append(make("b", "", page.name), `H-mean ${page.hmean.toFixed(3)}${change}, ${page.missed} missed, ${page.false} false`)
  node.append(box, caption)
  node.page = page
  node.type = "button"
  node.onclick = () => open(at)
  watcher.observe(node)
  return node
}

function open(at, error = -1) {
  if (at < 0 || at >= view.shown.length) return
  const page = view.shown[at]
  view.at = at
  if (!$("viewer").open) $("viewer").showModal()
  const data = draw(page, $("large"))
  $("title").textContent = `${at + 1} of ${view.shown.length}: ${page.name}, H-mean ${page.hmean.toFixed(3)}`
  $("list").replaceChildren(...data.errors.flatMap((found, number) => (fits(found) ? [entry(found, number)] : [])))
  fit()
  choose(error)
}

function entry(error, at) {
  const item = make("li"), button = make("button", error.kind)
  const score = error.score === null ? "" : `, score ${error.score.toFixed(2)}`
  const cause = error.cause === error.kind ? error.kind : `${error.kind}: ${error.cause}`
  button.append(`${cause}${score}${error.text ? " “" + error.text + "”" : ""}`, make("small", "", error.detail))
  button.dataset.at = at
  button.type = "button"
  button.onclick = () => choose(at)
  item.append(button)
  return item
}

function choose(at) {
  view.error = at
  for (const node of document.querySelectorAll("#large .current")) node.classList.remove("current")
  for (const node of document.querySelectorAll("#list button")) node.setAttribute("aria-pressed", Number(node.dataset.at) === at)
  const node = document.querySelector(`#large polygon[data-at="${at}"]`)
  if (!node) return
  node.classList.add("current")
  const pressed = document.querySelector(`#list button[data-at="${at}"]`)
  if (pressed) pressed.scrollIntoView({ block: "nearest" })
  const page = view.shown[view.at], box = node.getBBox(), stage = $("stage")
  const base = fitted(page)
  resize(Math.max(view.zoom, Math.min(4, (stage.clientWidth * 0.5) / Math.max(box.width * base, 1))))
  const scale = base * view.zoom
  stage.scrollLeft = (box.x + box.width / 2) * scale - stage.clientWidth / 2
  stage.scrollTop = (box.y + box.height / 2) * scale - stage.clientHeight / 2
}

// Pixels of the screen per pixel of the picture, if the whole page is shown.
const fitted = page => Math.min($("stage").clientWidth / page.width, $("stage").clientHeight / page.height)

function fit() {
  resize(1)
}

function resize(zoom) {
  const page = view.shown[view.at], stage = $("stage"), large = $("large")
  const before = [stage.scrollLeft + stage.clientWidth / 2, stage.scrollTop + stage.clientHeight / 2]
  const ratio = Math.min(Math.max(zoom, 1), 12) / view.zoom
  view.zoom *= ratio
  const scale = fitted(page) * view.zoom
  large.style.width = `${page.width * scale}px`
  large.style.height = `${page.height * scale}px`
  stage.scrollLeft = before[0] * ratio - stage.clientWidth / 2
  stage.scrollTop = before[1] * ratio - stage.clientHeight / 2
}

function stepError(direction) {
  const numbers = [...document.querySelectorAll("#list button")].map(node => Number(node.dataset.at))
  const next = numbers.indexOf(view.error) + direction
  if (view.error < 0 && direction < 0) return stepPage(-1)
  if (next >= 0 && next < numbers.length) return choose(numbers[next])
  stepPage(direction)
}

function stepPage(direction) {
  open(view.at + direction)
}

function toggle(name) {
  const box = $(name)
  box.checked = !box.checked
  box.onchange()
}

for (const name of ["truth", "boxes"]) {
  $(name).onchange = () => {
    document.body.classList.toggle("no-" + name, !$(name).checked)
    $("view-" + name).setAttribute("aria-pressed", $(name).checked)
  }
  $("view-" + name).onclick = () => toggle(name)
}
for (const name of ["cause", "kind"])
  $(name).onchange = () => {
    view[name] = $(name).value
    update()
  }
for (const button of document.querySelectorAll("button[data-cause]"))
  button.onclick = () => {
    view.cause = $("cause").value = view.cause === button.dataset.cause ? "" : button.dataset.cause
    update()
    $("pages").scrollIntoView()
  }
$("order").onchange = update
$("search").oninput = update
$("previous").onclick = () => stepPage(-1)
$("next").onclick = () => stepPage(1)
$("nearer").onclick = () => resize(view.zoom * 1.5)
$("further").onclick = () => resize(view.zoom / 1.5)
$("close").onclick = () => $("viewer").close()
$("viewer").onclose = () => {
  const cards = $("grid").children
  if (cards[view.at]) cards[view.at].focus()
  $("large").replaceChildren()
}
$("stage").onwheel = event => {
  if (!event.ctrlKey && !event.metaKey) return
  event.preventDefault()
  resize(view.zoom * (event.deltaY < 0 ? 1.2 : 1 / 1.2))
}
addEventListener("resize", () => {
  if ($("viewer").open) resize(view.zoom)
})

const KEYS = {
  ArrowRight: () => stepPage(1),
  ArrowLeft: () => stepPage(-1),
  n: () => stepError(1),
  p: () => stepError(-1),
  "+": () => resize(view.zoom * 1.5),
  "=": () => resize(view.zoom * 1.5),
  "-": () => resize(view.zoom / 1.5),
  0: fit,
}
addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input[type=search], select")) return
  if (event.key === "t") toggle("truth")
  else if (event.key === "b") toggle("boxes")
  else if (!$("viewer").open && (event.key === "n" || event.key === "ArrowRight")) open(0)
  else if ($("viewer").open && KEYS[event.key]) KEYS[event.key]()
  else return
  event.preventDefault()
})
update()
