// A hue per category, the same in every panel: golden-angle steps keep neighbours apart.

export function hues(items) {
  const names = [...new Set(items.map((item) => item.category))].sort();
  const hue = new Map(names.map((name, index) => [name, (165 + index * 137.508) % 360]));
  return (item) => `hsl(${hue.get(item.category).toFixed(0)} var(--hue-strength) var(--hue-light))`;
}
