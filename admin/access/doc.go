// Package access says who may do what over HTTP. A caller sends a bearer credential; Credentials turns it into a
// Principal with a role, and perhaps a tenant that it is bound to.
//
//	key    "hgk_" and 256 random bits; only its SHA-256 is kept. Nothing slower is needed: a hash of so much chance
//	       cannot be guessed, whereas a password's could.
//	token  a JSON Web Token, signed by a key of the JWKS file with the algorithm that this key names
//
// Whatever a caller sends is refused with the same error, so that the answer does not tell a wrong credential from one
// that has expired; RefusedError.Reason is for the log.
package access
