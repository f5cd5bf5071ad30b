// Package gubernator measures gubernator by package limits. It asks an instance in its own process, without a network, that owns all keys: the
// best that gubernator can do. It has a folder of its own since it compiles clients of Kubernetes and etcd, which takes a minute or two of a core.
package gubernator
