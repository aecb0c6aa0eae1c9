// Numbers, times and words as people read them.

const SIZES = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'];

/** A size with three digits at least. */
export function bytes(count) {
  let unit = 0;
  let value = Number(count);
  while (value >= 1024 && unit < SIZES.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || value >= 100 || Number.isInteger(value) ? 0 : value >= 10 ? 1 : 2;
  return `${value.toFixed(digits)} ${SIZES[unit]}`;
}

export const rate = (count) => `${bytes(Math.round(count))}/s`;

export function count(value) {
  return Number(value).toLocaleString('en-US', { maximumFractionDigits: value < 10 ? 1 : 0 });
}

export function percent(part, of) {
  if (!of) return '0 %';
  const value = (part / of) * 100;
  return `${value > 0 && value < 1 ? '<1' : value > 99 && value < 100 ? '99' : value.toFixed(0)} %`;
}

/** A length of time in two units at most, as the command line says it. */
export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  const pair = (large, largeUnit, small, smallUnit) =>
    small ? `${large} ${largeUnit} ${small} ${smallUnit}` : `${large} ${largeUnit}`;
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return pair(Math.floor(whole / 60), 'min', whole % 60, 's');
  if (whole < 86400) return pair(Math.floor(whole / 3600), 'h', Math.floor((whole % 3600) / 60), 'min');
  return pair(Math.floor(whole / 86400), 'd', Math.floor((whole % 86400) / 3600), 'h');
}

export function eta(range) {
  if (!range) return null;
  const latest = Math.max(range.earliest_s, range.latest_s);
  if (latest <= 1) return 'at most 1 s left';
  const [low, high] = [duration(range.earliest_s), duration(latest)];
  return low === high ? `${low} left` : `${low} to ${high} left`;
}

export function latency(us) {
  if (us === null || us === undefined) return '–';
  if (us < 1000) return `${Math.round(us)} µs`;
  if (us < 1e6) return `${Number((us / 1000).toFixed(us < 100000 ? 1 : 0))} ms`;
  return `${(us / 1e6).toFixed(1)} s`;
}

const DAY = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short', year: 'numeric' });
const TIME = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' });

export const day = (seconds) => DAY.format(new Date(seconds * 1000));

/** A time: today without its day. */
export function when(seconds) {
  const date = new Date(seconds * 1000);
  const isToday = DAY.format(date) === DAY.format(new Date());
  return isToday ? TIME.format(date) : `${DAY.format(date)}, ${TIME.format(date)}`;
}

export const ago = (seconds, now) => `${duration(Math.max(0, now - seconds))} ago`;

export const plural = (number, one, many = `${one}s`) => `${number} ${number === 1 ? one : many}`;

/** A level of protection, of a space or of what fits: in words. */
export function protection(of) {
  switch (of.resiliency) {
    case 'mirror':
      return `mirror, ${of.copies} copies`;
    case 'parity':
      return of.parity > 1 ? 'dual parity' : 'parity';
    default:
      return of.resiliency;
  }
}

export function losses(survives) {
  return survives === 0 ? 'loses data with any disk' : `survives the loss of ${plural(survives, 'disk')}`;
}

export const survives = (space) =>
  space.resiliency === 'mirror' ? space.copies - 1 : space.resiliency === 'parity' ? space.parity : 0;

export const baseName = (path) => String(path).split('/').filter(Boolean).pop() ?? String(path);

/** What people call a disk: its bay, or the last part of its path, or its id. */
export const diskName = (disk) =>
  disk.bay || (disk.path || disk.last_path ? baseName(disk.path || disk.last_path) : disk.id.slice(0, 8));

export const words = (code) => String(code).replaceAll('_', ' ');

const PLAIN = /^[A-Za-z0-9_\-./=:,@%+]+$/;

/** A word as a shell of POSIX reads it back. */
export const shellWord = (word) => (PLAIN.test(word) ? String(word) : `'${String(word).replaceAll("'", "'\\''")}'`);

/** A command line; words that are left out are null, false or empty. */
export const command = (...parts) =>
  [
    'dolmen',
    ...parts
      .flat(Infinity)
      .filter((part) => part !== null && part !== undefined && part !== false && part !== '')
      .map(shellWord),
  ].join(' ');

/** A size as commands take it, without loss. */
export function sizeWord(count) {
  for (const [letter, shift] of [
    ['T', 40],
    ['G', 30],
    ['M', 20],
    ['K', 10],
  ]) {
    const unit = 2 ** shift;
    if (count && count % unit === 0) return `${count / unit}${letter}`;
  }
  return String(count);
}
