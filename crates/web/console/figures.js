// Rates and latencies of spaces and disks, from the differences of two looks at what has been counted.
//
// The figures of the daemon only grow while an object is counted. Another `run` or `since_us` means that it is counted
// from the start again; then one look is passed over.

const KEPT_MS = 180_000;
const RECENT_MS = 60_000;

// By `space POOL/NAME`, `disk POOL/SLOT`, `pool NAME` and `all`, points of one look each, the oldest first.
const series = new Map();
let before = null;

export const spaceKey = (pool, name) => `space ${pool}/${name}`;
export const poolKey = (pool) => `pool ${pool}`;
export const diskKey = (pool, slot) => `disk ${pool}/${slot}`;

function growth(now, then) {
  const counts = new Map(then.latency.map((bucket) => [bucket.up_to_us, bucket.count]));
  const buckets = [];
  for (const bucket of now.latency) {
    const more = bucket.count - (counts.get(bucket.up_to_us) ?? 0);
    if (more > 0) buckets.push([bucket.up_to_us, more]);
  }
  return { count: now.count - then.count, bytes: now.bytes - then.bytes, us: now.total_us - then.total_us, buckets };
}

/** The time within which that part of the requests was done. */
export function percentile(buckets, part) {
  const total = buckets.reduce((sum, [, count]) => sum + count, 0);
  if (!total) return null;
  let passed = 0;
  for (const [us, count] of [...buckets].sort((a, b) => a[0] - b[0])) {
    passed += count;
    if (passed >= total * part) return us;
  }
  return null;
}

function add(key, point) {
  let points = series.get(key);
  if (!points) series.set(key, (points = []));
  points.push(point);
  while (point.at - points[0].at > KEPT_MS) points.shift();
}

function pointOf(load, old, seconds) {
  const reads = growth(load.reads, old.reads);
  const writes = growth(load.writes, old.writes);
  const all = [...reads.buckets, ...writes.buckets];
  return {
    readBytes: reads.bytes / seconds,
    writeBytes: writes.bytes / seconds,
    readIo: reads.count / seconds,
    writeIo: writes.count / seconds,
    p50: percentile(all, 0.5),
    p95: percentile(all, 0.95),
    p99: percentile(all, 0.99),
    busy: Math.min(1, (load.busy_us - old.busy_us) / (seconds * 1e6)),
    depth: (load.queue_us - old.queue_us) / (seconds * 1e6),
    reads: reads.buckets,
    writes: writes.buckets,
  };
}

/** Takes one look in. */
export function feed(figures) {
  const then = before;
  before = figures;
  if (!then || then.run !== figures.run) {
    series.clear();
    return;
  }
  const seconds = (figures.at_us - then.at_us) / 1e6;
  if (seconds < 0.2) {
    before = then;
    return;
  }
  const at = Date.now();
  // All spaces, and those of each pool.
  const sums = new Map();
  const sumOf = (key) => {
    if (!sums.has(key)) sums.set(key, { at, readBytes: 0, writeBytes: 0, readIo: 0, writeIo: 0, reads: [], writes: [] });
    return sums.get(key);
  };
  sumOf('all');
  const walk = (list, keyOf, isSpace) => {
    const old = new Map(list(then).map((entry) => [keyOf(entry), entry.load]));
    const seen = new Set();
    for (const entry of list(figures)) {
      const key = keyOf(entry);
      seen.add(key);
      const former = old.get(key);
      if (!former || former.since_us !== entry.load.since_us) continue;
      const point = { at, ...pointOf(entry.load, former, seconds) };
      add(key, point);
      if (!isSpace) continue;
      for (const sum of [sumOf('all'), sumOf(poolKey(entry.pool))]) {
        for (const name of ['readBytes', 'writeBytes', 'readIo', 'writeIo']) sum[name] += point[name];
        sum.reads.push(...point.reads);
        sum.writes.push(...point.writes);
      }
    }
    return seen;
  };
  const seen = new Set([
    ...walk(
      (document) => document.spaces,
      (entry) => spaceKey(entry.pool, entry.name),
      true,
    ),
    ...walk(
      (document) => document.disks,
      (entry) => diskKey(entry.pool, entry.slot),
      false,
    ),
  ]);
  for (const [key, sum] of sums) {
    const all = [...sum.reads, ...sum.writes];
    add(key, { ...sum, p50: percentile(all, 0.5), p95: percentile(all, 0.95), p99: percentile(all, 0.99) });
    seen.add(key);
  }
  for (const key of [...series.keys()]) if (!seen.has(key)) series.delete(key);
}

export const points = (key) => series.get(key) ?? [];

/** Rates of the last seconds, smoothed over some looks. */
export function recent(key, looks = 3) {
  const last = points(key).slice(-looks);
  if (!last.length) return null;
  const mean = (name) => last.reduce((sum, point) => sum + (point[name] ?? 0), 0) / last.length;
  const buckets = last.flatMap((point) => [...point.reads, ...point.writes]);
  return {
    readBytes: mean('readBytes'),
    writeBytes: mean('writeBytes'),
    readIo: mean('readIo'),
    writeIo: mean('writeIo'),
    busy: mean('busy'),
    p50: percentile(buckets, 0.5),
    p95: percentile(buckets, 0.95),
    p99: percentile(buckets, 0.99),
  };
}

/** Latencies of the last minute, or without any request in it, since the object is counted. */
export function latencies(key, load) {
  const last = points(key).filter((point) => Date.now() - point.at < RECENT_MS);
  const of = (kind) => {
    const buckets = last.flatMap((point) => point[kind]);
    const whole = () => (load?.[kind].latency ?? []).map((bucket) => [bucket.up_to_us, bucket.count]);
    const taken = buckets.length ? buckets : whole();
    return taken.length
      ? {
          p50: percentile(taken, 0.5),
          p95: percentile(taken, 0.95),
          p99: percentile(taken, 0.99),
          isRecent: buckets.length > 0,
        }
      : null;
  };
  return { reads: of('reads'), writes: of('writes') };
}

export function median(values) {
  const sorted = values.filter((value) => value !== null && value !== undefined).sort((a, b) => a - b);
  return sorted.length ? sorted[Math.floor((sorted.length - 1) / 2)] : null;
}
