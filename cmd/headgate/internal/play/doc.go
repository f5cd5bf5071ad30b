// Package play holds the commands of headgate that run jobs to be looked at, on a Redis of their own unless one is named: demo tells a
// story, replay does again what a trace recorded.
package play
