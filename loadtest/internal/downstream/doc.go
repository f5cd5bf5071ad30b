// Package downstream runs HTTP servers on the loopback interface that handlers of a load test call. They exist to fail as
// real ones do: a dead one refuses connections, a hanging one accepts them and never answers, and both come back on the
// address they had.
//
//	alive ──Die──▶ dead       connections refused
//	alive ──Hang─▶ hanging    connections accepted, no answer until it is mended
//	dead, hanging ──Mend──▶ alive
package downstream
