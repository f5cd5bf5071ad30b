// Package serve runs the admin API as a program does: it opens the address, enqueues by a producer of its own, follows the
// policy, and takes other keys, certificates and networks while it runs, so that they rotate without a restart. It reads no
// file and no variable: package config does, and hands over what they hold (file options). NewCommand is
// headgate serve.
package serve
