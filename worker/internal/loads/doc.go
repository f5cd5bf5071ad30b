// Package loads is how a worker tells how busy it is, where the policy has it do so: what its process uses, and how jobs of its queues ran
// in the last minute. The heartbeats of its first partition carry it. While nobody asks, nothing is measured and nothing is counted.
package loads
