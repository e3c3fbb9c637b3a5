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

/** The middle and the largest of the values that are there; null when none is. */
export function summary(values) {
  const there = values.filter((value) => value !== null).sort((a, b) => a - b);
  return there.length ? { middle: there[Math.floor(there.length / 2)], most: there.at(-1) } : null;
}
