// Package counts counts decisions by minute and scope, of the scopes with the most (the algorithm Space-Saving), as script count does.
package counts
