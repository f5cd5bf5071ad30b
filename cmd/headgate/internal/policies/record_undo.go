package policies

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/gofrs/flock"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// undoFile has what tenants had before an import, a line each. One import at a time writes to it, or two could each keep what the other has just stored.
type undoFile struct {
	file *os.File
	lock *flock.Flock // of a file beside it, which is there while an import runs
	kept map[string]bool
}

// openUndo opens a file of what was, or makes one. It is not to be the file of the records itself.
func openUndo(path string, source os.FileInfo) (*undoFile, error) {
	refuse := func(format string, args ...any) error {
		return cli.FieldError("undo", path, fmt.Sprintf(format, args...))
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, refuse("a file that can be written: %s", err.Error())
	}
	u := &undoFile{file: file, kept: map[string]bool{}}
	about, err := file.Stat()
	switch {
	case err != nil:
	case !about.Mode().IsRegular():
		err = refuse("a file that can be added to")
	case source != nil && os.SameFile(about, source):
		err = refuse("another file than that of the records")
	default:
		if err = u.hold(refuse); err == nil {
			err = u.readKept(refuse)
		}
	}
	if err != nil {
		return nil, errors.Join(err, u.close())
	}
	return u, nil
}

// hold sees to it that no other import writes to the file until close.
func (u *undoFile) hold(refuse func(string, ...any) error) error {
	lock := flock.New(u.file.Name()+".lock", flock.SetPermissions(0o600))
	switch alone, err := lock.TryLock(); {
	case err != nil:
		return refuse("a file beside which one of that name and .lock can be written: %s", err.Error())
	case !alone:
		return refuse("a file to which no other import writes: one holds %s", lock.Path())
	}
	u.lock = lock
	return nil
}

// close takes the lock away while it is held: who has opened it before finds it taken, or free and then is alone all the same.
func (u *undoFile) close() error {
	err := u.file.Close()
	if u.lock != nil {
		err = errors.Join(err, os.Remove(u.lock.Path()), u.lock.Unlock())
	}
	return err
}

// readKept reads whose records are kept. The last line may be a part of one: the import that wrote it was ended before it stored anything of that.
func (u *undoFile) readKept(refuse func(string, ...any) error) error {
	const begins = `{"tenant":`
	lines, whole := bufio.NewReader(u.file), int64(0)
	for number := 1; ; number++ {
		text, end := lines.ReadBytes('\n')
		if end != nil && !errors.Is(end, io.EOF) {
			return fmt.Errorf("read %s: %w", u.file.Name(), end)
		}
		var line recordLine
		bad := json.Unmarshal(text, &line)
		switch {
		case end != nil && len(text) == 0:
			return nil
		case bad == nil && line.Tenant != "":
			u.kept[line.Tenant] = true
		case end != nil && (strings.HasPrefix(string(text), begins) || strings.HasPrefix(begins, string(text))):
			return u.file.Truncate(whole)
		default:
			return refuse("a file of records that --undo has written, or none yet: line %d is no record", number)
		}
		if whole += int64(len(text)); end != nil {
			_, err := u.file.WriteString("\n")
			return err
		}
	}
}

// keep writes what tenants have that are not kept yet, and sees to it that it is on the disk.
func (u *undoFile) keep(before []store.TenantRecord) error {
	if u == nil {
		return nil
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	for _, was := range before {
		if u.kept[was.Tenant] {
			continue
		}
		if was.Version == policy.NoRecord {
			was.Text = []byte("{}")
		}
		if err := encoder.Encode(recordLine{was.Tenant, was.Text}); err != nil {
			return fmt.Errorf("write %s: %w", u.file.Name(), err)
		}
		u.kept[was.Tenant] = true
	}
	if text.Len() == 0 {
		return nil
	}
	_, err := u.file.Write(text.Bytes())
	if err == nil {
		err = u.file.Sync()
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", u.file.Name(), err)
	}
	return nil
}
