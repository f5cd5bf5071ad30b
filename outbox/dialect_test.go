package outbox_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/outbox"
)

func TestTheSchemeOfAnAddressSaysWhichDatabaseItIs(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]outbox.Dialect{
		"postgres://me:secret@db/app": outbox.PostgreSQL, "postgresql://db/app": outbox.PostgreSQL, "host=/run dbname=app password=secret:mysql": outbox.PostgreSQL,
		"dbname=app": outbox.PostgreSQL, "mysql://me:secret@db/app": outbox.MySQL, "mariadb://db/app": outbox.MySQL,
		"sqlite:app.db": outbox.SQLite, "sqlite:///var/lib/app.db": outbox.SQLite,
	} {
		if got, err := outbox.DialectOf(address); got != want || err != nil {
			t.Errorf("%s is %s, %v, want %s", address, got, err, want)
		}
	}
	for _, address := range []string{"", "secret", "me:secret@tcp(db)/app", "oracle://me:secret@db/app", "mysql", "app.db"} {
		_, err := outbox.DialectOf(address)
		if _, ok := errors.AsType[*admission.FieldError](err); !ok || address != "" && strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", address, err)
		}
	}
}

func TestADialectThatThereIsNotIsRefused(t *testing.T) {
	t.Parallel()
	none := outbox.Dialect(3)
	_, enqueue := none.Enqueue(t.Context(), nil, admission.NewJob("acme", "mail", "send", nil))
	_, status := none.Status(t.Context(), nil)
	_, dead := none.Dead(t.Context(), nil, 0, 1)
	_, redrive := none.Redrive(t.Context(), nil, "")
	_, relay := outbox.NewRelay(nil, nil, outbox.Config{Dialect: none, Window: window})
	for _, err := range []error{none.Migrate(t.Context(), nil), enqueue, status, dead, redrive, relay} {
		if err == nil || err.Error() != "invalid Dialect 3: allowed is PostgreSQL, MySQL or SQLite" {
			t.Error(err)
		}
	}
}
