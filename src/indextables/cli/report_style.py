"""The style sheet of the report page: light and dark, screen and print."""

from __future__ import annotations

STYLE = """
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --ink: #1b2430; --soft: #566273; --rule: #dfe4ea;
  --c1: #2f6fd0; --c2: #c8641b; --c3: #178272; --c4: #8450bd; --c5: #a8324e; --c6: #6b7684;
  --c7: #6f7d0e; --c8: #b0429f; --c9: #0b7fa6;
  --small: #c8641b; --large: #2f6fd0; --empty: #eef1f5; --on: #ffffff;
  --warn: #b4490a; --warn-back: #fff3e8; --hint: #2559a8; --hint-back: #edf4ff;
  --tile-opacity: .2;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #12161c; --card: #1a2029; --ink: #e6ebf2; --soft: #a3afbf; --rule: #303947;
    --c1: #6aa3ff; --c2: #f0985a; --c3: #46c2ae; --c4: #b68cf0; --c5: #ef7c93; --c6: #93a0b0;
    --c7: #b8c64a; --c8: #e68bd9; --c9: #56bfe0;
    --small: #f0985a; --large: #6aa3ff; --empty: #222a35; --on: #10151b;
    --warn: #ffb27a; --warn-back: #33241a; --hint: #9cc3ff; --hint-back: #1b2738;
    --tile-opacity: .3;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 2rem 1.25rem 3rem; max-width: 62rem; background: var(--page);
  color: var(--ink); font: 16px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif;
}
h1 { margin: 0; font-size: 2rem; line-height: 1.2; overflow-wrap: anywhere; }
h2 { margin: 0 0 .75rem; font-size: 1.2rem; }
h3 { margin: 0; font-size: 1rem; }
.kind { margin: 0; color: var(--soft); font-size: .85rem; }
.place { margin: .25rem 0 0; color: var(--soft); overflow-wrap: anywhere; }
code { font: .9em ui-monospace, "DejaVu Sans Mono", monospace; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: .75rem;
  margin: 1.5rem 0 0; }
.tiles div, section { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; }
.tiles div { padding: .7rem .9rem; display: flex; flex-direction: column; }
.tiles dt { color: var(--soft); font-size: .85rem; }
.tiles dd { margin: 0; font-size: 1.35rem; font-weight: 650; font-variant-numeric: tabular-nums; }
section { margin-top: 1.25rem; padding: 1.25rem 1.4rem; }
figure { margin: 0; }
figcaption, .key, footer { color: var(--soft); font-size: .875rem; }
figcaption { margin-top: .5rem; }
.key { margin: 0 0 .6rem; display: flex; flex-wrap: wrap; align-items: center; gap: .15rem 1.2rem; }
.swatch { width: .9rem; height: .9rem; border-radius: 3px; display: inline-block;
  margin-right: .4rem; vertical-align: -.1em; }
.wide { overflow-x: auto; }
svg { display: block; width: 100%; min-width: 40rem; height: auto; }
svg text { font: 13px system-ui, "Segoe UI", "DejaVu Sans", sans-serif; fill: var(--ink); }
svg .tick { fill: var(--soft); font-size: 12px; }
svg .strong { font-weight: 650; }
svg .mid { text-anchor: middle; } svg .end { text-anchor: end; }
.grid { stroke: var(--rule); stroke-width: 1; }
.area { opacity: .16; stroke: none; } .line { fill: none; stroke-width: 2; }
.dot { stroke: var(--card); stroke-width: 1; }
.bar { stroke: var(--card); stroke-width: 1; }
.empty { fill: var(--empty); }
rect.small, .swatch.small { fill: var(--small); background: var(--small); }
rect.large, .swatch.large { fill: var(--large); background: var(--large); }
rect.tile { fill-opacity: var(--tile-opacity); stroke-width: 1.5; }
rect.tile.small { stroke: var(--small); } rect.tile.large { stroke: var(--large); }
svg .value.on { fill: var(--on); font-weight: 650; }
svg .c1 { fill: var(--c1); } svg .c2 { fill: var(--c2); } svg .c3 { fill: var(--c3); }
svg .c4 { fill: var(--c4); } svg .c5 { fill: var(--c5); } svg .c6 { fill: var(--c6); }
svg .c7 { fill: var(--c7); } svg .c8 { fill: var(--c8); } svg .c9 { fill: var(--c9); }
svg .line.c1 { fill: none; stroke: var(--c1); } svg .line.c3 { fill: none; stroke: var(--c3); }
.swatch.c1 { background: var(--c1); } .swatch.c2 { background: var(--c2); }
.swatch.c3 { background: var(--c3); } .swatch.c4 { background: var(--c4); }
.swatch.c5 { background: var(--c5); } .swatch.c6 { background: var(--c6); }
.swatch.c7 { background: var(--c7); } .swatch.c8 { background: var(--c8); }
.swatch.c9 { background: var(--c9); }
details { margin-top: .75rem; } summary { cursor: pointer; color: var(--hint); }
table { border-collapse: collapse; width: 100%; min-width: 30rem; margin-top: .5rem;
  font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .8rem .35rem 0; text-align: left; border-bottom: 1px solid var(--rule);
  vertical-align: top; overflow-wrap: anywhere; }
th { color: var(--soft); font-weight: 600; }
.advice { list-style: none; margin: 0; padding: 0; display: grid; gap: .75rem;
  grid-template-columns: minmax(0, 1fr); }
.advice li { padding: .8rem 1rem; border-radius: 8px; border-left: 4px solid; }
.advice p { margin: .25rem 0 0; overflow-wrap: anywhere; }
.advice pre { margin: .5rem 0 0; padding: .5rem .75rem; background: var(--card); border-radius: 6px;
  overflow-x: auto; user-select: all; }
.advice span { font-weight: 650; font-size: .8rem; border-radius: 99px; padding: .1rem .55rem;
  margin-right: .3rem; border: 1px solid; }
.advice .warning { border-color: var(--warn); background: var(--warn-back); }
.warning span { color: var(--warn); }
.advice .hint { border-color: var(--hint); background: var(--hint-back); }
.hint span { color: var(--hint); }
.fine { margin: 0; }
footer { margin-top: 1.5rem; }
@media print { body { max-width: none; } section { break-inside: avoid; } }
"""
