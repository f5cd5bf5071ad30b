// Package setup holds the commands of headgate about what its processes are told: the configuration (config), and the API keys by which
// others may call them (key).
package setup
