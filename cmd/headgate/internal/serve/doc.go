// Package serve runs the admin API as a program does: it opens the address, reads keys, tokens' keys and certificates
// from files or the environment, and reads them again at SIGHUP, so that they rotate without a restart. Config is all
// that can be set; the command line fills it, and so may a file.
package serve
