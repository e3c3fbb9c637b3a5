// Values over time, ready to be drawn.

export const SPAN_S = 300;

/** The known seconds with the newer ones, no older than the span. */
export function merged(known, fresh, now) {
  const bySecond = new Map([...known, ...fresh].map((one) => [one.second, one]));
  return [...bySecond.values()].filter(({ second }) => second > now - SPAN_S).sort((a, b) => a.second - b.second);
}

/** `name` of every second of the span, oldest first, `missing` where nothing happened; the second under way is left out. */
export function series(seconds, name, now, missing = null) {
  const bySecond = new Map(seconds.map((one) => [one.second, one[name]]));
  const last = Math.floor(now) - 1;
  return Array.from({ length: SPAN_S }, (_, i) => bySecond.get(last - SPAN_S + 1 + i) ?? missing);
}

/** The mean of the last `count` values. */
export function recent(values, count) {
  const last = values.slice(-count);
  return last.reduce((sum, value) => sum + value, 0) / last.length;
}

/** A round number at or above `value`: 1, 2 or 5 times a power of ten. */
export function ceiling(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value * 0.999999);
}

/** From 0 to a round number: where a value stands (0 to 1), and what to write beside it. */
export function linear(values) {
  const most = ceiling(Math.max(1, ...values.filter((value) => value !== null)));
  return { ticks: [0, most / 2, most], at: (value) => value / most };
}

/** From 1 to a power of ten, a decade as high as the next: for what ranges from ordinary to a thousand times that. */
export function logarithmic(values) {
  const decades = Math.max(2, Math.ceil(Math.log10(Math.max(1, ...values.filter((value) => value !== null)))));
  return {
    ticks: Array.from({ length: decades + 1 }, (_, i) => 10 ** i),
    at: (value) => Math.log10(Math.max(1, value)) / decades,
  };
}

/** The middle and the largest of the values that are there; null when none is. */
export function summary(values) {
  const there = values.filter((value) => value !== null).sort((a, b) => a - b);
  return there.length ? { middle: there[Math.floor(there.length / 2)], most: there.at(-1) } : null;
}
