// Package logs makes the loggers of a headgate process: one a component, each with a level of its own that can be changed
// while the process runs, and sampled when hot. It exists because a zerolog.Logger is a value: whoever was given one keeps
// it, so what changes must stand behind it.
//
// A line below its component's level costs one atomic load and allocates nothing.
package logs
