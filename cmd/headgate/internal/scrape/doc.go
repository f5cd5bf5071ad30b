// Package scrape serves the metrics of one process over HTTP, /metrics, to everybody who reaches its address: those of a worker and of a relay.
package scrape
