// Package redistest gives tests a real Redis: one they share, one they may kill, a cluster of one node, and a
// proxy that loses requests or replies on purpose. It exists because the laws of this house are about what a real
// Redis does, and about what is left when it, or the way to it, fails. There is no mock.
//
//	shared     Shared(t), Prefix(t)   one server a test process; each test has its own key prefix
//	own        Start(t, Options{})    to kill, pause, restart, fill up or configure
//	cluster    SharedCluster(t)       one node that owns all slots: refuses a script that spans two
//	nodes      StartNodes(t, ...)     a cluster of several masters, with replicas if asked for
//	network    StartNodesApart(t, n)  the same, whose network can be cut in two
//	failover   StartFailover(t, ...)  a master, its replica and three Sentinels
//	clock      NewClock(t, offset)    a time of day for servers of one's own, which the test steps
//	proxy      NewProxy(t, addr)      cuts a connection before a command or before its reply
//	spent      CommandStats(t, c)     what a server has had of each command; Processor(t, c) of time
//
// A machine without redis-server fails these tests; only -short leaves them out. No server survives its test
// process, however that ends (see package child).
//
// A package whose tests use a shared server has
//
//	func TestMain(m *testing.M) { redistest.Main(m) }
//
// # Lost requests and lost replies
//
// Both look the same to a client: its connection ends while it waits. CutBefore means that Redis never saw the
// command; CutAfter that it has executed it, because the proxy waits for the first byte of the reply before it
// drops the reply. In both cases the replies of earlier commands of the same connection arrive, and later ones are
// not forwarded, so a test knows for each command of a pipeline what became of it.
package redistest
