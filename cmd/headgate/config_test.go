package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/cmd/headgate/internal/config"
	"github.com/headgate/headgate/cmd/headgate/internal/serve"
	"github.com/headgate/headgate/cmd/headgate/internal/work"
	"github.com/headgate/headgate/internal/redistest"
)

// optionView is what config reference --json says of an option, as far as it is looked at.
type optionView struct{ Path, Flag, Env, Default string }

func reference(t *testing.T) (all []optionView) {
	t.Helper()
	out := runHeadgate(t.Context(), "config", "reference", "--json")
	if err := json.Unmarshal([]byte(out.stdout), &all); err != nil || out.code != cli.ExitOK || len(all) < 50 {
		t.Fatalf("%d options: %v: %+v", len(all), err, out)
	}
	return all
}

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "headgate.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestEveryOptionWithAFlagHasItWithTheSameDefault(t *testing.T) {
	t.Parallel()
	server, worker := serve.NewCommand().Flags(), work.NewCommand().Flags()
	known := map[*pflag.Flag]bool{}
	for _, option := range reference(t) {
		if option.Flag == "" {
			continue
		}
		found := 0
		for flags, sections := range map[*pflag.FlagSet][]string{server: config.ServeSections, worker: config.WorkerSections} {
			section, _, _ := strings.Cut(option.Path, ".")
			flag := flags.Lookup(option.Flag)
			if !slices.Contains(sections, section) || flag == nil {
				continue
			}
			found++
			known[flag] = true
			if option.Default != "" && flag.DefValue != option.Default && flag.DefValue != "" {
				t.Errorf("--%s is %s by default, %s is %s", option.Flag, flag.DefValue, option.Path, option.Default)
			}
		}
		if found == 0 {
			t.Errorf("no command has --%s for %s", option.Flag, option.Path)
		}
	}
	for _, flags := range []*pflag.FlagSet{server, worker} {
		flags.VisitAll(func(flag *pflag.Flag) {
			if !known[flag] && flag.Name != "config" && flag.Name != "set" {
				t.Errorf("--%s is no option of the configuration", flag.Name)
			}
		})
	}
}

func TestConfigCheckAndPrint(t *testing.T) {
	t.Parallel()
	good := writeConfig(t, "redis: {url: 'redis://ada:sesame@localhost:6379'}\nworker: {queues: [mail=3], deliver: {url: 'https://example.com/sesame'}}\n")
	bad := writeConfig(t, "worker: {concurency: 1, lease: 1, deliver: {url: 'ftp://example.com'}}\nredis: {url: 'ftp://sesame'}\n")
	for args, row := range map[string]struct {
		code int
		want []string
	}{
		"check " + good:          {cli.ExitOK, []string{"the configuration is well"}},
		"check --config " + good: {cli.ExitOK, []string{"the configuration is well"}},
		"check " + bad: {cli.ExitFailure, []string{
			"unknown key worker.concurency: did you mean worker.concurrency?", "invalid worker.lease 1: allowed is 200ms to 10m",
			`invalid worker.deliver.url "ftp://example.com": allowed is http`, "redis.url: redis address has an unknown scheme",
		}},
		"check /nowhere.yaml": {cli.ExitFailure, []string{"open /nowhere.yaml"}},
		"check a b":           {cli.ExitUsage, []string{"takes one argument at most, FILE, got 2"}},
		"check a --config b":  {cli.ExitUsage, []string{"the file is given twice"}},
		"print --prefix " + strings.Repeat("a", 99): {cli.ExitUsage, []string{`invalid --prefix "` + strings.Repeat("a", 63) + `…: allowed is 1-32 bytes`}},
		"print a":                          {cli.ExitUsage, []string{`takes no argument, got "a"`}},
		"print --set worker.concurrency=0": {cli.ExitUsage, []string{"invalid --set worker.concurrency 0: allowed is 1 to 10000"}},
		"print --set worker.concurrency=0 --config " + good: {cli.ExitUsage, []string{"invalid --set worker.concurrency 0: allowed is 1 to 10000"}},
		"bogus":     {cli.ExitUsage, []string{`there is no command "bogus"`}},
		"reference": {cli.ExitOK, []string{"# Configuration", "HEADGATE_WORKER_LEASE"}},
		"print --redis h:1 --set worker.lease=30s": {cli.ExitOK, []string{`url: "h:1" # --redis`, `lease: "30s" # --set worker.lease`, "concurrency: 10 # default"}},
		"print --config " + good + " --prefix other": {cli.ExitOK, []string{
			`url: "redis://ada:xxxxx@localhost:6379" # file ` + good, `prefix: "other" # --prefix`, `queues: ["mail=3"] # file`,
			`url: "https://example.com/***" # file`, "# password: not set: that of the URL",
		}},
	} {
		out := runHeadgate(t.Context(), append([]string{"config"}, strings.Fields(args)...)...)
		for _, want := range row.want {
			if !strings.Contains(out.stdout+out.stderr, want) {
				t.Errorf("config %s: %q is not in %s%s", args, want, out.stdout, out.stderr)
			}
		}
		if out.code != row.code || strings.Contains(out.stdout+out.stderr, "sesame") {
			t.Errorf("config %s: exit code %d, want %d: %s%s", args, out.code, row.code, out.stdout, out.stderr)
		}
	}
}

func TestAFileSaysWhereTheRedisIs(t *testing.T) {
	t.Parallel()
	name := writeConfig(t, fmt.Sprintf("redis: {url: %q, prefix: %s}\nlog: {levels: {producer: debug}}\n", redistest.Shared(t).URL(), redistest.Prefix(t)))
	out := runHeadgate(t.Context(), "enqueue", "--config", name, "--tenant", "acme", "--queue", "q", "--type", "send", "--id", "one")
	if out.code != cli.ExitOK || !strings.Contains(out.stderr, `"component":"producer"`) {
		t.Errorf("enqueue: %+v", out)
	}
	if out := runHeadgate(t.Context(), "job", "show", "acme", "one", "--config", name); out.code != cli.ExitOK {
		t.Errorf("job show: %+v", out)
	}
	if out := runHeadgate(t.Context(), "doctor", "--config", name, "--set", "worker.lease=1ns"); out.code != cli.ExitUsage || !strings.Contains(out.stderr, "--set worker.lease 1ns") {
		t.Errorf("doctor with a bad option: %+v", out)
	}
}

// TestThePasswordIsNowhere gives the password of a Redis in every way, right and wrong, to every command that says much.
func TestThePasswordIsNowhere(t *testing.T) { // Not parallel: it sets variables.
	const password = "open-sesame"
	server := redistest.Start(t, redistest.Options{Args: []string{"--requirepass", password}})
	prefix := redistest.Prefix(t)
	secret := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(secret, []byte(password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	bare, full := server.URL(), strings.Replace(server.URL(), "://", "://:"+password+"@", 1)
	for name, way := range map[string]struct {
		url, environment string
		file             string
	}{
		"url of a flag":       {url: full},
		"url of a variable":   {environment: "HEADGATE_REDIS=" + full},
		"variable":            {url: bare, environment: "HEADGATE_REDIS_PASSWORD=" + password},
		"file of a variable":  {url: bare, environment: "HEADGATE_REDIS_PASSWORD_FILE=" + secret},
		"configuration":       {file: fmt.Sprintf("redis: {url: %q, password: %s}", bare, password)},
		"url of a file":       {file: fmt.Sprintf("redis: {url: %q}", full)},
		"file named by one":   {file: fmt.Sprintf("redis: {url: %q, password_file: %q}", bare, secret)},
		"url that is broken":  {url: "redis://:" + password + "@" + server.Addr() + "/x"},
		"url that leads away": {url: "redis://:" + password + "@127.0.0.1:1"},
		"wrong user":          {url: "redis://nobody:" + password + "@" + server.Addr()},
	} {
		t.Run(name, func(t *testing.T) {
			if variable, value, ok := strings.Cut(way.environment, "="); ok {
				t.Setenv(variable, value)
			}
			where := []string{"--prefix", prefix}
			if way.url != "" {
				where = append(where, "--redis", way.url)
			}
			if way.file != "" {
				where = append(where, "--config", writeConfig(t, way.file))
			}
			works := !strings.Contains(name, "that") && name != "wrong user"
			// line is the words of a command with the place put where flags go.
			line := func(args string) []string {
				words := strings.Fields(args)
				at := 1
				if words[0] == "policy" || words[0] == "config" {
					at = 2
				}
				return slices.Concat(words[:at], where, words[at:])
			}
			for _, args := range []string{
				"doctor", "policy set default", "config print", "config check", "worker --help", "doctor --help", "config print --help",
				"enqueue --tenant acme --queue q --type send --set log.levels.producer=debug",
			} {
				out := runHeadgate(t.Context(), line(args)...)
				if text := out.stdout + out.stderr; strings.Contains(text, "sesame") {
					t.Errorf("%s shows the password: %s", args, text)
				}
				if works && out.code != cli.ExitOK {
					t.Errorf("%s: %+v", args, out)
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			log := &lockedBuffer{}
			done := make(chan int, 1)
			go func() {
				done <- execute(ctx, line("worker --queue q --log debug --exec true"), os.Stdin, io.Discard, log)
			}()
			if works {
				awaitLog(t, log.String, "worker registered", 1)
				cancel()
			}
			if code := <-done; works != (code == cli.ExitOK) || strings.Contains(log.String(), "sesame") {
				t.Errorf("exit code %d, or the password is in the log:\n%s", code, log.String())
			}
		})
	}
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if out := runHeadgate(t.Context(), "completion", shell); out.code != cli.ExitOK || len(out.stdout) < 1000 {
			t.Errorf("%s: exit code %d, %d bytes: %s", shell, out.code, len(out.stdout), out.stderr)
		}
	}
	// A shell that reads the script completes by asking the binary.
	bash := exec.CommandContext(t.Context(), "bash", "-c", `source /dev/stdin && complete -p headgate`)
	bash.Stdin = strings.NewReader(runHeadgate(t.Context(), "completion", "bash").stdout)
	if text, err := bash.CombinedOutput(); err != nil || !strings.Contains(string(text), "__start_headgate") {
		t.Errorf("bash: %v: %s", err, text)
	}
	out := runHeadgate(t.Context(), cobra.ShellCompRequestCmd, "worker", "--dr")
	if !strings.Contains(out.stdout, "--drain-timeout") {
		t.Errorf("got %+v", out)
	}
}
