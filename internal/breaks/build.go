package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// buildAll compiles the breaks and runs nothing else: all that change different files at once, in halves where that fails, until it is
// known which do not.
func buildAll(ctx context.Context, folder string, faults []fault) error {
	var unbuilt []string
	rounds := apart(faults)
	for i, round := range rounds {
		bad, err := builds(ctx, folder, round)
		if err != nil {
			return err
		}
		unbuilt = append(unbuilt, bad...)
		fmt.Printf("%d of %d: %d breaks, %d do not compile\n", i+1, len(rounds), len(round), len(bad))
	}
	if len(unbuilt) > 0 {
		return fmt.Errorf("%d of %d breaks do not compile:\n%s", len(unbuilt), len(faults), strings.Join(unbuilt, "\n"))
	}
	return nil
}

// apart divides breaks so that no two of one part change the same file.
func apart(faults []fault) (parts [][]fault) {
	of := map[string]int{}
	for i := range faults {
		f := &faults[i]
		if of[f.file] == len(parts) {
			parts = append(parts, nil)
		}
		parts[of[f.file]] = append(parts[of[f.file]], *f)
		of[f.file]++
	}
	return parts
}

// builds returns those of some breaks that do not compile, with what the compiler says.
func builds(ctx context.Context, folder string, faults []fault) ([]string, error) {
	said, err := compile(ctx, folder, faults)
	if err != nil || said == "" {
		return nil, err
	}
	if len(faults) == 1 {
		return []string{faults[0].id() + ": " + said}, nil
	}
	var all []string
	for _, half := range [][]fault{faults[:len(faults)/2], faults[len(faults)/2:]} {
		bad, err := builds(ctx, folder, half)
		if err != nil {
			return nil, err
		}
		all = append(all, bad...)
	}
	return all, nil
}

// compile compiles everything with some breaks in it, and has Redis load the scripts where one is among them. It returns what was wrong.
func compile(ctx context.Context, folder string, faults []fault) (string, error) {
	overlay, err := overlayFor(folder, faults)
	if err != nil {
		return "", err
	}
	steps := [][]string{{"build", goRedisFlags, "-overlay", overlay, "./..."}}
	for i := range faults {
		if strings.HasSuffix(faults[i].file, ".lua") {
			steps = append(steps, []string{"test", goRedisFlags, "-overlay", overlay, "-count=1", "./lua", "-run", "^(TestEveryScriptCompiles|TestEveryNameIsThere)$"})
			break
		}
	}
	for _, step := range steps {
		said, err := exec.CommandContext(ctx, "go", step...).CombinedOutput()
		if _, failed := errors.AsType[*exec.ExitError](err); failed && ctx.Err() == nil {
			return strings.TrimSpace(string(said)), nil
		}
		if err != nil {
			return "", fmt.Errorf("go %s: %w", step[0], err)
		}
	}
	return "", nil
}

// overlayFor writes the broken files, each of another break, and the overlay that puts them in the place of the sound ones.
func overlayFor(folder string, faults []fault) (string, error) {
	replace := map[string]string{}
	own, err := os.MkdirTemp(folder, "")
	if err != nil {
		return "", fmt.Errorf("make a folder: %w", err)
	}
	for i := range faults {
		f := &faults[i]
		text, err := f.broken(".")
		if err != nil {
			return "", err
		}
		place, err := filepath.Abs(f.file)
		if err != nil {
			return "", fmt.Errorf("find the file: %w", err)
		}
		broken := filepath.Join(own, fmt.Sprintf("%d-%s", i, filepath.Base(f.file)))
		if err := os.WriteFile(broken, text, 0o600); err != nil {
			return "", fmt.Errorf("write the break: %w", err)
		}
		replace[place] = broken
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return "", fmt.Errorf("write the overlay: %w", err)
	}
	path := filepath.Join(own, "overlay.json")
	if err := os.WriteFile(path, overlay, 0o600); err != nil {
		return "", fmt.Errorf("write the overlay: %w", err)
	}
	return path, nil
}
