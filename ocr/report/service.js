'use strict'
const $ = id => document.getElementById(id)
const SVG = 'http://www.w3.org/2000/svg'
let info = null, file = null, pages = [], at = 0, request = null

function make(name, attributes = {}, text = '', space = null) {
  const node = space ? document.createElementNS(space, name) : document.createElement(name)
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value)
  if (text !== '') node.textContent = text
  return node
}

function tell(text, wrong = false) {
  $('status').className = wrong ? 'wrong' : ''
  $('status').setAttribute('role', wrong ? 'alert' : 'status')
  $('status').textContent = text
}

// The words of a page that the threshold leaves, numbered as the service would number them.
function kept(page) {
  const words = Object.values(page.words).filter(word => word.score >= Number($('threshold').value))
  return Object.fromEntries(words.map((word, index) => [String(index + 1).padStart(4, '0'), word]))
}

function bounds(points) {
  const xs = points.map(point => point[0]), ys = points.map(point => point[1])
  const [left, top] = [Math.min(...xs), Math.min(...ys)]
  return {left, top, width: Math.max(...xs) - left, height: Math.max(...ys) - top}
}

function score(word) { return word.score.toFixed(2) }

function draw() {
  if (!pages.length) return
  const page = pages[at], words = Object.entries(kept(page))
  $('shown').textContent = Number($('threshold').value).toFixed(2)
  $('threshold').setAttribute('aria-valuetext', `${$('shown').textContent}, ${words.length} boxes`)
  const size = {width: page.img_w, height: page.img_h}
  const title = `Page ${page.page}: ${words.length} boxes`
  const svg = make('svg', {...size, viewBox: `0 0 ${page.img_w} ${page.img_h}`, role: 'img', 'aria-label': title}, '', SVG)
  svg.append(make('image', {...size, href: page.picture}, '', SVG))
  $('sheet').replaceChildren(svg)
  $('sheet').classList.toggle('full', $('full').checked)
  // Letters of ten pixels on the screen, whatever the size of the page: left of the box if there is room.
  const letters = 10 / Math.max(0.01, Math.min(svg.clientWidth / page.img_w, svg.clientHeight / page.img_h))
  const rows = []
  for (const [name, word] of words) {
    const box = bounds(word.points)
    const polygon = make('polygon', {points: word.points.map(point => point.join()).join(' ')}, '', SVG)
    polygon.append(make('title', {}, `${name}: score ${score(word)}`, SVG))
    svg.append(polygon)
    if ($('scores').checked) {
      const isLeft = box.left > 3 * letters
      const place = isLeft ? {x: box.left - letters / 4, 'text-anchor': 'end'} : {x: box.left}
      const y = isLeft ? box.top + box.height / 2 + letters / 3 : Math.max(letters, box.top)
      const style = {y, 'font-size': letters, 'stroke-width': letters / 4, 'aria-hidden': true}
      svg.append(make('text', {...place, ...style}, score(word), SVG))
    }
    const row = make('tr')
    row.append(make('th', {scope: 'row'}, name), make('td', {class: 'number'}, score(word)),
               make('td', {class: 'number'}, `${box.left.toFixed(0)}, ${box.top.toFixed(0)}`),
               make('td', {class: 'number'}, `${box.width.toFixed(0)} x ${box.height.toFixed(0)}`))
    row.addEventListener('mouseenter', () => polygon.classList.add('marked'))
    row.addEventListener('mouseleave', () => polygon.classList.remove('marked'))
    rows.push(row)
  }
  $('list').replaceChildren(...rows)
  $('pages').hidden = pages.length < 2
  $('number').textContent = `Page ${at + 1} of ${pages.length}: ${words.length} boxes`
  $('before').disabled = at === 0
  $('next').disabled = at === pages.length - 1
  const total = pages.reduce((sum, one) => sum + Object.keys(kept(one)).length, 0)
  const of = pages.length > 1 ? ` on ${pages.length} pages` : ''
  tell(`${file.name}: ${total} ${total === 1 ? 'box' : 'boxes'}${of}`)
}

function turn(to) {
  at = Math.max(0, Math.min(pages.length - 1, to))
  draw()
}

async function detect(chosen) {
  request?.abort()
  const own = request = new AbortController()
  const limit = info?.limits.bytes
  const tooLarge = limit && chosen.size > limit
  $('progress').hidden = tooLarge
  if (tooLarge) return tell(`${chosen.name} has ${bytes(chosen.size)}; at most ${bytes(limit)} are allowed.`, true)
  tell(`Finding text in ${chosen.name}`)
  try {
    const answer = await fetch('detect?box_thresh=0&pictures=true', {
      method: 'POST', body: chosen, signal: own.signal,
      headers: {'Content-Type': chosen.type || 'application/octet-stream'},
    })
    const found = await answer.json()
    if (!answer.ok) throw new Error(found.error.message)
    ;[file, pages, at] = [chosen, found.pages, 0]
    $('result').hidden = false
    draw()
  } catch (error) {
    if (error.name === 'AbortError') return
    tell(error instanceof TypeError ? 'The service does not answer. Is it still running?' : error.message, true)
  } finally {
    if (request === own) $('progress').hidden = true
  }
}

function bytes(count) { return `${(count / 1e6).toFixed(count < 1e6 ? 2 : 0)} MB` }

function save() {
  const words = pages.map(({page, img_w, img_h, ...rest}) => ({page, img_w, img_h, words: kept(rest)}))
  const found = {box_thresh: Number($('threshold').value), pages: words}
  const link = make('a', {download: `${file.name}.json`})
  link.href = URL.createObjectURL(new Blob([JSON.stringify(found, null, 1)], {type: 'application/json'}))
  link.click()
  setTimeout(() => URL.revokeObjectURL(link.href), 10000)
}

function describe(schema) {
  for (const [path, methods] of Object.entries(schema.paths)) {
    for (const [method, endpoint] of Object.entries(methods)) {
      const name = make('h3')
      name.append(make('code', {}, `${method.toUpperCase()} ${path}`), `  ${endpoint.summary}`)
      const table = make('table'), body = make('tbody')
      const add = (key, text) => {
        const row = make('tr'), cell = make('td')
        cell.append(make('code', {}, key))
        row.append(cell, make('td', {}, text))
        body.append(row)
      }
      for (const one of endpoint.parameters ?? []) add(`?${one.name}=${one.schema.default}`, one.description)
      for (const [status, one] of Object.entries(endpoint.responses)) add(status, one.description)
      table.append(body)
      const scroll = make('div', {class: 'scroll'})
      scroll.append(table)
      $('endpoints').append(name, scroll)
    }
  }
}

$('file').addEventListener('change', () => { if ($('file').files[0]) detect($('file').files[0]); $('file').value = '' })
addEventListener('paste', event => { if (event.clipboardData.files[0]) detect(event.clipboardData.files[0]) })
for (const kind of ['dragenter', 'dragover']) addEventListener(kind, event => {
  event.preventDefault()
  $('drop').classList.add('over')
})
for (const kind of ['dragleave', 'drop']) addEventListener(kind, () => $('drop').classList.remove('over'))
addEventListener('drop', event => {
  event.preventDefault()
  if (event.dataTransfer.files[0]) detect(event.dataTransfer.files[0])
})
for (const id of ['threshold', 'scores', 'full']) $(id).addEventListener('input', draw)
addEventListener('resize', draw)
$('before').addEventListener('click', () => turn(at - 1))
$('next').addEventListener('click', () => turn(at + 1))
$('save').addEventListener('click', save)
$('sheet').addEventListener('keydown', event => {
  const step = {ArrowLeft: -1, ArrowRight: 1}[event.key]
  if (step && !$('full').checked) turn(at + step)  // In full size the arrows scroll.
})
$('example').textContent = `curl --data-binary @scan.jpg ${location.origin}/detect`
fetch('openapi.json').then(answer => answer.json()).then(describe)
fetch('info').then(answer => answer.json()).then(found => {
  info = found
  $('threshold').value = found.box_thresh
  const {bytes: most, pages: count, pixels} = found.limits
  $('allowed').textContent = `At most ${bytes(most)}, ${pixels / 1e6} megapixels, ${count} pages.`
  draw()
})
