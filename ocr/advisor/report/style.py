"""The style of the report: light and dark, for phones and desktops, and black on white in print."""

# The chart colours (c1 to c5) are at least 26 apart (CIE76) for normal sight and for each of the three kinds of colour
# blindness, and have a contrast of 3 : 1 against the card. A test measures it.
LIGHT = """
--ink: #1f2430; --soft: #5b6475; --line: #e4e7ec; --page: #fafbfc; --card: #ffffff; --head: #f5f6f8;
--ok: #0b6b3f; --ok-back: #e3f6ec; --wrong: #b42c08; --wrong-back: #fdeae5; --plain-back: #e8effa;
--c1: #1a56cf; --c2: #d0770f; --c3: #25a56e; --c4: #8f4f98; --c5: #3d434d;
"""
DARK = """
--ink: #e7eaf0; --soft: #a3adbd; --line: #303845; --page: #11151b; --card: #191f28; --head: #212936;
--ok: #7fe0ae; --ok-back: #12352a; --wrong: #ffb199; --wrong-back: #45211a; --plain-back: #1d2c44;
--c1: #4c8df6; --c2: #e28a2b; --c3: #4fe3ae; --c4: #eda6ea; --c5: #777f8d;
"""
PRINT = """
--ink: #000; --soft: #333; --line: #bbb; --page: #fff; --card: #fff; --head: #fff;
--ok: #000; --ok-back: #fff; --wrong: #000; --wrong-back: #fff; --plain-back: #fff;
"""
STYLE = (
    f":root {{ color-scheme: light dark; {LIGHT} }}\n"
    f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {DARK} }} }}\n"
    """
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body { margin: 0 auto; max-width: 1180px; padding: 32px 24px 64px; color: var(--ink); background: var(--page);
       font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif; }
h1 { font-size: 24px; margin: 0; }
h2 { font-size: 18px; margin: 40px 0 8px; }
h3 { font-size: 15px; margin: 0 0 2px; }
p { margin: 0 0 10px; color: var(--soft); overflow-wrap: anywhere; }
p b { color: var(--ink); }
.sources { margin-top: 14px; font-size: 13px; }
.sources p { margin: 0; }
p.source { font-size: 13px; }
.stack + p.source, .columns + p.source, .scroll + p.source { margin-top: 24px; }
code, pre { font-family: ui-monospace, "SF Mono", Menlo, "DejaVu Sans Mono", monospace; font-size: 13px; }
.verdict { margin: 12px 0; padding: 10px 16px; border-radius: 10px; font-size: 17px; font-weight: 600;
           line-height: 1.4; }
.verdict::first-letter { text-transform: uppercase; }
.verdict.ok { background: var(--ok-back); color: var(--ok); }
.verdict.wrong { background: var(--wrong-back); color: var(--wrong); }
.verdict.plain { background: var(--plain-back); color: var(--ink); }

.card, .scroll, pre { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
                      box-shadow: 0 1px 2px #1018280d; }
.card { margin: 0; padding: 16px 18px; }
.card p { font-size: 13px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin: 0; }
.tiles div { display: flex; flex-direction: column-reverse; justify-content: flex-end; padding: 12px 16px;
             background: var(--card); border: 1px solid var(--line); border-radius: 10px; min-width: 0; }
.tiles dt { font-size: 13px; color: var(--soft); overflow-wrap: anywhere; }
.tiles dd { margin: 0; font-size: 22px; font-weight: 600; font-variant-numeric: tabular-nums; }
.columns { display: grid; grid-template-columns: minmax(0, 1fr); gap: 20px; margin-bottom: 20px; }
.stack { display: flex; flex-direction: column; gap: 20px; min-width: 0; }
.facts { margin: 6px 0 0; }
.facts div { display: grid; grid-template-columns: minmax(96px, 140px) minmax(0, 1fr); gap: 12px; padding: 5px 0;
             border-top: 1px solid var(--line); font-size: 14px; }
.facts div:first-child { border-top: 0; }
.facts dt { color: var(--soft); }
.facts dd { margin: 0; overflow-wrap: anywhere; }

.scroll { overflow-x: auto; margin: 0; }
.scroll:focus-visible, pre:focus-visible { outline: 2px solid var(--c1); outline-offset: 2px; }
table { border-collapse: separate; border-spacing: 0; width: 100%; font-size: 14px; }
caption { padding: 14px 14px 10px; text-align: left; font-size: 15px; font-weight: 600; }
th, td { padding: 7px 12px; text-align: left; vertical-align: top; border-top: 1px solid var(--line); }
thead th { font-weight: 600; font-size: 13px; color: var(--soft); background: var(--head); white-space: nowrap; }
tbody th { font-weight: 500; min-width: 150px; max-width: 340px; overflow-wrap: anywhere; background: var(--card); }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.remedies tbody th { min-width: 210px; }
.remedies td:last-child { min-width: 240px; color: var(--soft); }
small { display: block; font-size: 12px; font-weight: 400; color: var(--soft); }
small code { display: block; font-size: 12px; }
small span { display: block; color: var(--wrong); }
.badge { display: inline-block; padding: 0 8px; border-radius: 999px; font-size: 12px; font-weight: 600;
         background: var(--head); color: var(--soft); }
meter { width: 72px; height: 12px; vertical-align: -1px; }
details { margin-top: 12px; }
details > .scroll { margin-top: 8px; }
summary { cursor: pointer; font-weight: 600; overflow-wrap: anywhere; }
summary:focus-visible { outline: 2px solid var(--c1); outline-offset: 2px; border-radius: 4px; }
.settings td { overflow-wrap: anywhere; min-width: 150px; }
.runs td:last-child { min-width: 170px; }
pre { margin: 8px 0 0; padding: 10px 14px; white-space: pre-wrap; overflow-wrap: anywhere; user-select: all;
      -webkit-user-select: all; }

svg.chart { display: block; width: 100%; height: auto; margin-top: 10px; }
svg.wide, svg.full { display: none; }
svg text { font-size: 12px; fill: var(--ink); paint-order: stroke; stroke: var(--card); stroke-width: 3px;
           stroke-linejoin: round; }
svg text.tick, svg text.unit, svg text.key { font-size: 11px; fill: var(--soft); }
svg text.value { font-variant-numeric: tabular-nums; }
svg .strong text { font-weight: 700; }
svg path { fill: none; }
svg .grid { stroke: var(--line); shape-rendering: crispEdges; }
svg .axis { stroke: var(--soft); shape-rendering: crispEdges; }
svg .today { stroke: var(--soft); stroke-width: 1.5; stroke-dasharray: 4 3; }
svg .whisker { stroke: var(--ink); stroke-width: 1.5; }
svg .link { stroke: var(--soft); stroke-width: 2; }
"""
    + "".join(
        f"svg .c{n} {{ fill: var(--c{n}); }} svg .ring.c{n}, svg .line.c{n} {{ stroke: var(--c{n}); }}\n"
        for n in range(1, 6)
    )
    + """svg .ring { fill: none; stroke-width: 2.5; }
svg path.line { fill: none; stroke-width: 2; stroke-linejoin: round; }
svg .dashed { stroke-dasharray: 7 3; }
svg .dotted { stroke-dasharray: 2 3; }
@media (min-width: 620px) {
  svg.wide { display: block; max-width: 640px; }
  svg.narrow { display: none; }
}
@media (min-width: 1080px) {
  .columns.n2 { grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); }
}
@media (min-width: 1180px) {
  .w3 svg.wide { display: none; }
  svg.full { display: block; }
}
@media (max-width: 619px) {
  body { padding: 20px 12px 40px; }
  .card { padding: 14px 12px; }
  .tiles { grid-template-columns: 1fr 1fr; }
  tr > :first-child { position: sticky; left: 0; }
  tbody th, .remedies tbody th { min-width: 132px; max-width: 160px; }
}
@media print {
"""
    f":root {{ color-scheme: light; {PRINT} }}\n"
    """
  @page { margin: 12mm; }
  body { max-width: none; padding: 0; font-size: 12px; print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  h2 { margin: 18px 0 6px; }
  h2, h3, p.source, caption { break-after: avoid; }
  .card, .tiles div, pre, tr { break-inside: avoid; box-shadow: none; }
  .card { padding: 10px 12px; }
  .verdict { border: 1px solid #000; padding: 6px 12px; font-size: 15px; }
  .columns, .columns.n2 { display: block; margin-bottom: 10px; }
  .stack { display: block; }
  .columns .card, .columns .scroll { margin-bottom: 10px; }
  svg.wide { display: block; max-width: 490px; }
  svg.narrow { display: none; }
  .scroll { overflow: visible; border: 0; }
  tbody th { background: none; }
  table { font-size: 10px; }
  caption { padding: 8px 5px 5px; }
  thead { display: table-header-group; }
  th, td { padding: 3px 5px; }
  thead th { white-space: normal; font-size: 10px; }
  tbody th, .remedies td:last-child, .runs td:last-child, .settings td { min-width: 0; position: static; }
  .remedies tbody th { min-width: 130px; }
  small, small code, .badge { font-size: 9px; }
}
"""
)
