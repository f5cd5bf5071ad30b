// Package spans sends the traces of a process to a collector, by OTLP over HTTP. It exists so that the binary alone knows
// OpenTelemetry's SDK and its exporter: programs that embed Headgate bring a TracerProvider of their own (package telemetry).
//
// Without an endpoint there is no provider, no goroutine and no header of a trace.
package spans
