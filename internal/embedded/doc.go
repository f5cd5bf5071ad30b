// Package embedded opens the store that the binary runs on: the Redis whose address it was given, or one of its
// own when it was given none. It exists so that the first command a newcomer types works on a machine that has
// no Redis, and says plainly what such a store cannot do.
//
//	an address            that Redis: redis://, rediss:// or host:port
//	none, and there is    redis-server or valkey-server from PATH, as a private child on a free loopback port.
//	a server in PATH      It persists nothing and ends with this process.
//	none                  miniredis inside this process: one process, nothing survives, and slow.
//
// Nothing in a private child or in miniredis survives this process, by design: whoever wants to keep jobs runs
// a Redis and gives its address. Both listen on the loopback interface without a password, so every user of the
// machine can reach them.
//
// # What miniredis does otherwise
//
// Scripts run on it if they keep to what both answer alike. testdata/parity.txt compares it with a real server,
// call by call, and a test holds that page true. The differences that matter to a script's author:
//
//   - Scores come back in the shortest form, "8e+8" or "1.7e+15", and its tonumber answers nil to an exponent
//     without a dot: read a number as `tonumber(s) or s + 0`. Alone, `s + 0` reads "010" as octal.
//   - XDEL takes an entry out of the pending list too, so XACK comes before XDEL.
//   - XPENDING and XCLAIM know no exclusive range "(id"; XINFO GROUPS has no entries-read.
//   - A history read (XREADGROUP with an id) ignores COUNT and leaves out the deleted entries that Redis answers
//     with nil.
//   - An error raised by redis.call loses its prefix; one returned by redis.error_reply keeps it.
//   - string.format: %f and %g want a number, not a numeral; %c breaks above 127; there is no %u.
//   - A key may expire a quarter of a second early: a TTL that must hold is given a second more.
//   - unpack takes 5000 values at most; INFO knows no memory section; there is no CONFIG and no `#!lua` line.
package embedded
