// The answer of /v1/experts.

function decoded(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

/** With `tiers` and `heat` as bytes, layer by layer. */
export function readMap(answer) {
  return { ...answer, tiers: decoded(answer.tiers), heat: decoded(answer.heat) };
}

/** Experts and their part of all uses, by tier; tiers that hold none are left out. */
export function byTier({ in_tier, uses_in_tier }) {
  const all = Object.values(uses_in_tier).reduce((sum, uses) => sum + uses, 0);
  return Object.entries(in_tier)
    .filter(([, count]) => count)
    .map(([tier, count]) => ({ tier, count, share: all ? uses_in_tier[tier] / all : null }));
}

/** What is known of the expert at `row` (of the layers with experts) and `column`. */
export function expertAt(map, row, column) {
  const at = row * map.experts + column;
  const tier = map.tier_names[map.tiers[at]];
  return tier === undefined ? null : { layer: map.layers[row], expert: column, tier, heat: (map.heat[at] / 255) ** 2 };
}

/** Each layer's experts by tier, for those who read instead of look. */
export function layerRows(map) {
  return map.layers.map((layer, row) => {
    const cells = Array.from({ length: map.experts }, (_, column) => expertAt(map, row, column)).filter(Boolean);
    const counts = {};
    for (const { tier } of cells) counts[tier] = (counts[tier] ?? 0) + 1;
    const used = cells.filter(({ heat }) => heat > 0).length;
    const hottest = cells.reduce((best, cell) => (cell.heat > best.heat ? cell : best), { heat: -1 });
    return { layer, counts, used, hottest: hottest.heat > 0 ? hottest.expert : null };
  });
}
