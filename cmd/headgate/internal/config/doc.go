// Package config is what headgate can be told: by defaults, a file, the environment and flags, the later of which win.
// It exists so that one table says of each option its path, type, range, default and meaning, and everything else comes
// from that table: the reader, the checks, `headgate config`, docs/CONFIG.md and their tests.
//
//	YAML, TOML, JSON ─┐
//	HEADGATE_*       ─┼─▶ layers ─▶ Load: unknown keys, types, ranges ─▶ Config ─▶ Store, Logs, Credentials, ...: what fits
//	flags, --set     ─┘             all problems at once                            together, files of secrets
//
// A new section is a struct in Config, a function of options in a table file, and its line in options. An option that a
// running process can change is Live in the table; Changes tells these from the others.
//
// It knows none of the services: packages work and serve make of a Config what a worker and a server are told, package cli opens the Redis.
package config
