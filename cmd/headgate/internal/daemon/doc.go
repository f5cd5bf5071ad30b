// Package daemon holds the commands of headgate that stay: worker, which hands jobs to a server or a command, and serve, the admin API. Both
// put changes of their configuration in force while they run (file follower); a worker logs what it does (journal) and shows it as metrics (meter).
package daemon
