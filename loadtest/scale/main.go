package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	name := flag.String("costs", "docs/EXTRAPOLATION.md", "file with the table of measured costs")
	flag.Parse()
	if err := run(*name); err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

func run(name string) error {
	text, err := os.ReadFile(name) //nolint:gosec // The user names the file.
	if err != nil {
		return err
	}
	c, err := readCosts(string(text))
	if err != nil {
		return err
	}
	_, err = fmt.Print(table(c))
	return err
}
