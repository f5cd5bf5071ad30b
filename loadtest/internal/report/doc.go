// Package report writes the report of a load test: DIR/index.html, one page that needs nothing but itself, its plots
// inline as SVG, and each plot as a PNG beside it. It exists so that a run can be looked at, shown and kept without a
// network and without a program.
package report
