// Package ops holds the commands of headgate for whoever runs a deployment: what waits where and why (queue, explain, holds, breaker), what
// was done by whom (audit), whether all is well (doctor), and acts that no policy has: pause and resume, drain, force a breaker, migrate.
package ops
