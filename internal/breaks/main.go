package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strings"
	"sync"
	"time"
)

// lists is where the faults are, below the root of the checkout.
const lists = "internal/breaks/list"

// oneTest bounds a test under a fault: what hangs is caught.
const oneTest = 3 * time.Minute

// result is what became of a fault.
type result struct {
	fault fault
	// verdict is caught, SURVIVED, survives (with a reason), or what is wrong with the entry.
	verdict string
	sound   bool
	output  string
	took    time.Duration
}

func main() {
	only := flag.String("run", "", "only breaks whose area/name matches this regular `expression`")
	table := flag.String("table", "", "write the table to this `file`")
	parallel := flag.Int("parallel", 2, "breaks at a time")
	sound := flag.Bool("sound", false, "run the named tests on the sound code first: a test that is red anyway catches nothing")
	build := flag.Bool("build", false, "only compile the breaks, and run no test: minutes, not hours")
	verbose := flag.Bool("v", false, "print what each test said")
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), "Puts deliberate faults into the code, one at a time, and runs the tests that must go red.\n\n"+
			"  go run ./internal/breaks -run 'worker/'   those of one area\n  go run ./internal/breaks -sound           all, after the same tests on the sound code\n"+
			"  go run ./internal/breaks -build           whether all compile, which takes minutes\n\n")
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, options{*only, *table, *parallel, *sound, *build, *verbose}); err != nil {
		fmt.Fprintln(os.Stderr, "breaks:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	only, table           string
	parallel              int
	sound, build, verbose bool
}

func run(ctx context.Context, o options) error {
	faults, err := chosen(o.only)
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "breaks")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	defer os.RemoveAll(folder)
	if o.build {
		return buildAll(ctx, folder, faults)
	}
	if o.sound {
		if err := checkSound(ctx, faults); err != nil {
			return err
		}
	}
	results := make([]result, len(faults))
	var wg sync.WaitGroup
	places := make(chan struct{}, max(o.parallel, 1))
	for i := range faults {
		wg.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			if ctx.Err() != nil {
				return
			}
			results[i] = try(ctx, folder, faults[i])
			r := &results[i]
			fmt.Printf("%-10s %6.1fs  %s: %s\n", r.verdict, r.took.Seconds(), r.fault.id(), r.fault.says)
			if !r.sound || o.verbose {
				fmt.Println(r.output)
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return conclude(results, o.table)
}

// chosen returns the faults whose id matches.
func chosen(only string) ([]fault, error) {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return nil, fmt.Errorf("-run: %w", err)
	}
	all, err := readFaults(lists)
	if err != nil {
		return nil, err
	}
	var faults []fault
	for i := range all {
		if pattern.MatchString(all[i].id()) {
			faults = append(faults, all[i])
		}
	}
	if len(faults) == 0 {
		return nil, fmt.Errorf("no break matches %q; run it from the root of the checkout", only)
	}
	return faults, nil
}

// checkSound runs each named test once on the code as it is.
func checkSound(ctx context.Context, faults []fault) error {
	seen := map[string]bool{}
	for i := range faults {
		key := strings.Join(faults[i].test, " ")
		if key == "" || seen[key] {
			continue
		}
		seen[key] = true
		if output, err := test(ctx, faults[i].test, ""); err != nil {
			return fmt.Errorf("red without any break: go test %s: %w\n%s", key, err, shortened(output))
		}
	}
	fmt.Printf("%d tests are green on the sound code\n", len(seen))
	return nil
}

// try compiles a fault and runs its test.
func try(ctx context.Context, folder string, f fault) (r result) {
	began := time.Now()
	r.fault = f
	defer func() { r.took = time.Since(began) }()
	if f.survives != "" {
		r.verdict, r.sound = "survives", true
		return r
	}
	overlay, err := overlayFor(folder, []fault{f})
	if err != nil {
		r.verdict, r.output = "MISPLACED", err.Error()
		return r
	}
	output, err := test(ctx, f.test, overlay)
	r.output = shortened(output)
	switch {
	case unbuilt(output):
		r.verdict = "UNBUILT"
	case strings.Contains(output, "no tests to run"):
		r.verdict = "NO TEST"
	case err == nil:
		r.verdict = "SURVIVED"
	default:
		r.verdict, r.sound = "caught", true
	}
	return r
}

// goRedisFlags compiles go-redis as the Makefile does, so that it is compiled once.
const goRedisFlags = "-gcflags=github.com/redis/go-redis/v9=-l"

// test runs `go test` with args and returns what it printed.
func test(ctx context.Context, args []string, overlay string) (string, error) {
	words := []string{"test", "-count=1", "-failfast", "-timeout", oneTest.String(), goRedisFlags}
	if overlay != "" {
		words = append(words, "-overlay", overlay)
	}
	command := exec.CommandContext(ctx, "go", append(words, args...)...)
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	err := command.Run()
	return output.String(), err
}

// unbuilt says by what a test printed that it was never about the break: it did not compile, or names what is not there.
func unbuilt(output string) bool {
	for _, sign := range []string{"[build failed]", "[setup failed]", "Error compiling", "nonexistent global variable"} {
		if strings.Contains(output, sign) {
			return true
		}
	}
	return false
}

func shortened(text string) string {
	const most = 4000
	if len(text) > most {
		return "…" + text[len(text)-most:]
	}
	return text
}

// conclude counts, writes the table and says what is wrong.
func conclude(results []result, table string) error {
	caught, excused, wrong := 0, 0, 0
	for i := range results {
		switch {
		case results[i].verdict == "caught":
			caught++
		case results[i].sound:
			excused++
		default:
			wrong++
		}
	}
	fmt.Printf("%d breaks: %d caught, %d survive with a reason, %d wrong\n", len(results), caught, excused, wrong)
	if table != "" {
		if err := os.WriteFile(table, page(results, caught), 0o600); err != nil {
			return fmt.Errorf("write the table: %w", err)
		}
	}
	if wrong > 0 {
		return fmt.Errorf("%d of %d breaks are not caught", wrong, len(results))
	}
	return nil
}

// page is docs/BREAKS.md.
func page(results []result, caught int) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Breaks\n\nDeliberate faults, each put into the code by itself, and the test that goes red. `make breaks` runs them all and writes this page;\n"+
		"`go run ./internal/breaks -run NAME` runs some. %d of %d are caught.\n\n| break | file | what is broken | caught by |\n| --- | --- | --- | --- |\n", caught, len(results))
	for i := range results {
		f := &results[i].fault
		by := "`go test " + strings.ReplaceAll(strings.Join(f.test, " "), "|", "\\|") + "`"
		if f.survives != "" {
			by = "nothing: " + f.survives
		} else if !results[i].sound {
			by = "**nothing**"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", f.id(), f.file, f.says, by)
	}
	return b.Bytes()
}
