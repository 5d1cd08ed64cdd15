// The certificate: the bound, its terms as a bar, and what it rests on.

import { claim, d3, layer, number, picture, table } from "./draw.js";

export function certificatePicture() {
  const bar = picture("terms", "Terms of the bound", (svg, { terms }, width) => {
    const total = d3.sum(terms, (t) => t.part); // the terms add up in p-th powers; their parts add up to the bound
    let from = 0;
    const parts = terms.map((t) => ({ ...t, from, to: (from += t.part) }));
    const x = d3.scaleLinear([0, total || 1], [0, width]);
    layer(svg, "parts").selectAll("rect").data(parts).join("rect").attr("class", (_, i) => `s${i + 1}`)
      .attr("x", (t) => x(t.from)).attr("width", (t) => Math.max(0, x(t.to) - x(t.from))).attr("y", 2).attr("height", 24);
    return 28;
  });
  return (certificate) => {
    const line = document.getElementById("bound");
    line.replaceChildren(claim(certificate.norm_order, certificate.text));
    line.dataset.value = certificate.bound;
    const measured = `${certificate.kind}, over the ${certificate.domain}; measured by sampling: ${number(certificate.measured)}`;
    line.append(Object.assign(document.createElement("small"), { textContent: measured }));
    bar(certificate);
    table("term-table", null, certificate.terms.map((t, i) => [
      { text: t.name, swatch: `s${i + 1}` }, { text: t.meaning, className: "text" }, { text: t.text, value: t.value },
    ]));
    document.getElementById("basis").textContent = `What it rests on: ${certificate.basis}`;
  };
}
