// How a disk is, as a colour and in words.

import { plural } from './format.js';

const LOW = 50;
const FULL = 100;

/** `healthy`, `warning`, `unhealthy`, or `idle` for a disk that takes no data. */
export function diskHealth(disk) {
  if (disk.state === 'absent' || disk.backing_state) return 'unhealthy';
  if (disk.smart?.passed === false || (disk.score !== null && disk.score !== undefined && disk.score < LOW))
    return 'unhealthy';
  if (disk.times_slower || (disk.score !== null && disk.score !== undefined && disk.score < FULL)) return 'warning';
  return disk.state === 'spare' || disk.state === 'idle' ? 'idle' : 'healthy';
}

const BACKING = {
  removed: 'its file was removed',
  cut_short: 'its file was cut short',
  unplugged: 'its device is gone',
};

/** What is the matter with a disk, in a few words each. */
export function diskTroubles(disk) {
  return [
    disk.backing_state && BACKING[disk.backing_state],
    disk.read_errors && plural(disk.read_errors, 'read error'),
    disk.write_errors && plural(disk.write_errors, 'write error'),
    disk.checksum_errors && plural(disk.checksum_errors, 'checksum error'),
    disk.timed_out_reads && plural(disk.timed_out_reads, 'timed-out read'),
    disk.times_slower && `${disk.times_slower} times as slow as its peers`,
    disk.smart?.passed === false && 'SMART predicts a failure',
    disk.gained_bytes && 'its device has grown',
  ].filter(Boolean);
}
