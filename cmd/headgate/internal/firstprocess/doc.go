// Package firstprocess is what the first process of a container has to do beside its work: whoever loses its parent becomes its
// child, and stays a zombie until it is waited for. It exists because commands of a worker may leave such processes behind, and a
// container of headgate needs no init of its own then. The work runs in a child, so that nobody takes the ends of commands from those
// who wait for them. Elsewhere than on Linux it does nothing.
package firstprocess
