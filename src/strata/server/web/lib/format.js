// Numbers and times as people read them.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

/** 1536 -> "1.5 KiB". */
export function bytes(count) {
  let unit = 0;
  while (count >= 1024 && unit < UNITS.length - 1) {
    count /= 1024;
    unit += 1;
  }
  return `${number(count, count < 10 && unit ? 1 : 0)} ${UNITS[unit]}`;
}

/** With thousands separated, and `digits` after the point at most. */
export function number(value, digits = 0) {
  return value.toLocaleString("en", { maximumFractionDigits: digits });
}

/** 0.034 -> "34 ms", 2.5 -> "2.5 s", 90 -> "1 min 30 s". */
export function seconds(value) {
  if (value < 1) return `${number(1000 * value, value < 0.01 ? 1 : 0)} ms`;
  if (value < 60) return `${number(value, value < 10 ? 1 : 0)} s`;
  return `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`;
}

/** 0.873 -> "87%". */
export function percent(part) {
  return `${Math.round(100 * part)}%`;
}

/** When `time` (ms) was, seen from `now`. */
export function ago(time, now) {
  const minutes = Math.round((now - time) / 60000);
  if (minutes < 1) return "just now";
  if (minutes < 60) return `${minutes} min ago`;
  if (minutes < 24 * 60) return `${Math.round(minutes / 60)} h ago`;
  return new Date(time).toLocaleDateString("en", { day: "numeric", month: "short", year: "numeric" });
}

export function plural(count, one, many = `${one}s`) {
  return `${number(count)} ${count === 1 ? one : many}`;
}
