package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"golang.org/x/perf/benchfmt"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "targets:", err)
		}
		os.Exit(2)
	}
}

func run(args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("targets", flag.ContinueOnError)
	flags.SetOutput(stderr)
	limitsAlone := flags.Bool("limits", false, "print the table of the algorithms of limits alone")
	summary := flags.Bool("short", false, "print the table of the README")
	asJSON := flags.Bool("json", false, "print one JSON array instead of the table")
	flags.Usage = func() {
		fmt.Fprint(stderr, "usage: targets [-json | -limits | -short] FILE...\n\nPrints which targets are reached by the benchmarks whose output the files hold.\n\n"+
			"example: targets bin/bench/rounds.txt\n\n")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		flags.Usage()
		return flag.ErrHelp
	}
	found, err := read(flags.Args())
	if err != nil {
		return err
	}
	if *limitsAlone {
		return writeLimits(stdout, found)
	}
	if *summary {
		return writeShort(stdout, found)
	}
	rows := judge(targets, found)
	if *asJSON {
		encoder := json.NewEncoder(stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(rows)
	}
	if err := write(stdout, rows); err != nil {
		return err
	}
	return writeLimits(stdout, found)
}

// measured holds the values of each round by benchmark and unit.
type measured map[figure][]float64

// read reads benchmarks' output. Lines of other kinds are of no interest; a file without any result is an error.
func read(names []string) (measured, error) {
	found := measured{}
	files := benchfmt.Files{Paths: names}
	for files.Scan() {
		result, ok := files.Result().(*benchfmt.Result)
		if !ok {
			continue
		}
		base, parts := result.Name.Parts()
		if n := len(parts); n > 0 && parts[n-1][0] == '-' { // GOMAXPROCS
			parts = parts[:n-1]
		}
		name := string(base) + string(bytes.Join(parts, nil))
		for _, v := range result.Values {
			value, unit := v.Value, v.Unit
			if v.OrigUnit != "" {
				value, unit = v.OrigValue, v.OrigUnit
			}
			f := figure{name, unit}
			found[f] = append(found[f], value)
		}
	}
	if err := files.Err(); err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no result of a benchmark is in %q", names)
	}
	return found, nil
}
